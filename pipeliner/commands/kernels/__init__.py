"""Commands on one kernel: build, plan, inspect, timeline, verify, demo, doctor."""
