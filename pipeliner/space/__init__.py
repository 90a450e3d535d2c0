"""The plan space of a kernel: every combination, ranked, and what rules others out."""
