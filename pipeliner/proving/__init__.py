"""Proofs made while nvcc compiles, in a copy of this process, for as long as that takes."""
