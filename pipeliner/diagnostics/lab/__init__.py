"""Sentences of commands, files, records and experiments."""
