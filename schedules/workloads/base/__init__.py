"""What every workload is made of: types, operands, blocks of its function, steps behind sums."""
