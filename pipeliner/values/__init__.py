"""Plain values that passes, cost model and emulator share."""
