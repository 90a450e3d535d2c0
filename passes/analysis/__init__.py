"""What a statement touches: memory, effects, fences, shared accesses."""
