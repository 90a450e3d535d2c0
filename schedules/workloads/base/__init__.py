"""What every workload is made of: types, blocks of its function, steps behind its sums."""
