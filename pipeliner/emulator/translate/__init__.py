"""Lowered IR to one Python generator function."""
