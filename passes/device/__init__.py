"""Passes behind TVM's own, down to what CUDA is printed from."""
