"""nvcc, ptxas and the disassemblers: found, run, read."""
