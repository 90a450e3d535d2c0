"""Nests shared out over the threads of a CTA."""
