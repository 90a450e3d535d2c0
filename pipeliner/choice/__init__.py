"""From what a kernel does to ranked plans: instruction, mechanism, depth."""
