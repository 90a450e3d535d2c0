"""Workloads of several operations in one loop, whose schedules are no plain matmul's."""
