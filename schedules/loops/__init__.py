"""Schedules of several operations a loop, and what recognition will find in them."""
