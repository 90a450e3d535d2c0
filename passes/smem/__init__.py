"""One arena for the shared memory of a kernel."""
