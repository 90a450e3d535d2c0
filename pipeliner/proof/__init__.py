"""For which trip counts and interleavings a kernel is right, read from its lowered IR."""
