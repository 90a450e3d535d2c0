"""Experiments as files: workloads times variants, measured on each GPU, resumed from records."""

from .file import SHIPPED, Experiment, LabelledWorkload, Variant, read_experiment
from .run import Outcome, Step, predicted_us, run_experiment, steps_of

__all__ = [
    "SHIPPED",
    "Experiment",
    "LabelledWorkload",
    "Outcome",
    "Step",
    "Variant",
    "predicted_us",
    "read_experiment",
    "run_experiment",
    "steps_of",
]
