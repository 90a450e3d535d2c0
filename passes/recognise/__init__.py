"""Find the loops worth pipelining and describe them in plain values."""
