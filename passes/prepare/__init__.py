"""Passes before recognition: allocations, views and rings that a user wrote, in one form."""
