"""A function pipelined, compiled, emulated, exported, edited."""
