"""Give the tiles of a function to threads: copies, matmuls, nests, stores, whole kernels."""
