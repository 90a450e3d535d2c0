"""Sentences of what runs: emulation, hazards, verification, mutation."""
