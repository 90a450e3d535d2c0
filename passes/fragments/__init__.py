"""Tiles in registers: which thread has which element, and nests that run where they are."""
