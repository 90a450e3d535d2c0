"""Barriers, mbarriers, groups of asynchronous copies, waits, launches."""
