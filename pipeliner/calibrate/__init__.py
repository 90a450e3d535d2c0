"""Measure the constants of the cost model on the GPU of this machine.

``probes`` says what is measured, ``kernels`` has what runs, ``measure`` runs it, and ``machines``
makes the machine of it, which a machine file keeps.
"""

from __future__ import annotations

from .machines import with_measured
from .measure import Calibration, calibrate
from .probes import Probe, ProbeRun, Took, probes

__all__ = [
    "Calibration",
    "Probe",
    "ProbeRun",
    "Took",
    "calibrate",
    "probes",
    "with_measured",
]
