"""Search for the fastest kernel of a workload, and keep everything that is measured on the way.

tuned = pipeliner.tune(Gemm(4096, 4096, 4096), trials=32, db="tuned.sqlite")
kernel = pipeliner.build(Gemm(4096, 4096, 4096), db="tuned.sqlite")
"""

from .compiling import BuiltCandidate, Compiler
from .gpu import GpuMeasurer
from .measuring import Compiles, Measurement, Measurer
from .remote import RemoteMeasurer, remote_measurers
from .session import Progress
from .space import Point, space
from .tuner import TRIALS, Tuned, on_gpus, ranked, records_path, tune

__all__ = [
    "TRIALS",
    "BuiltCandidate",
    "Compiler",
    "Compiles",
    "GpuMeasurer",
    "Measurement",
    "Measurer",
    "Point",
    "Progress",
    "RemoteMeasurer",
    "Tuned",
    "on_gpus",
    "ranked",
    "records_path",
    "remote_measurers",
    "space",
    "tune",
]
