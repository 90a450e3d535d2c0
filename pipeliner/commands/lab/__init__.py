"""Commands that measure: bench, tune, experiment, record, replay, regret, ablate, calibrate."""
