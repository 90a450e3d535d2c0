"""Scheduled functions that this project's schedules did not make, with what a person expects of each."""
