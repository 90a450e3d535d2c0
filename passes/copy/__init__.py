"""Emit copies: register-staged, cp.async, TMA (tiled, im2col, multicast), and layouts."""
