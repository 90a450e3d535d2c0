"""Modulo scheduling: cycles, stages and order of a loop's ops; plans that are handed in."""
