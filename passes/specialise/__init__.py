"""Warp specialisation: producer and consumer roles, ping-pong."""
