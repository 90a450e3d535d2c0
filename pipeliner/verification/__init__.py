"""Whether a kernel is right: what is run, against what, how exact."""
