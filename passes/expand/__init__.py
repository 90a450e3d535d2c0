"""Expand a scheduled loop: prologue, steady state, epilogue, rings."""
