"""Sentences of what is planned and refused."""
