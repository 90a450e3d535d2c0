"""The one service that measures: kernels compiled ahead, checked, and timed interleaved.

Every contender is checked against float64 first, on an output that holds NaN before. Then all are
interleaved, the order changing each round, the L2 cache overwritten before each run, so that clocks
and temperature drift for all alike; a contender's figure is the median of its rounds. Operands are
standard normal: zeros draw less power and run faster than any real matrix.
"""

from .compiling import (
    Builder,
    BuiltCandidate,
    Compiler,
    MadeAtItsTurn,
    Recipe,
    workers_for,
)
from .conditions import Conditions, check_gpu, current_conditions, device_name, require_gpu
from .contenders import Inputs, Runner, Say
from .gpu_bench import GpuBench
from .measurer import Compiles, Measurement, Measurer
from .process import GpuMeasurer, Here, Open, Survey, Trial, Try
from .remote import RemoteMeasurer, remote_measurers
from .rounds import (
    FLUSH_BYTES,
    FLUSHES,
    READ,
    ROUNDS,
    WARM_UP,
    WRITTEN,
    Rounds,
    flushing,
    race,
    timed,
)

__all__ = [
    "FLUSHES",
    "FLUSH_BYTES",
    "READ",
    "ROUNDS",
    "WARM_UP",
    "WRITTEN",
    "Builder",
    "BuiltCandidate",
    "Compiler",
    "Compiles",
    "Conditions",
    "GpuBench",
    "GpuMeasurer",
    "Here",
    "Inputs",
    "MadeAtItsTurn",
    "Measurement",
    "Measurer",
    "Open",
    "Recipe",
    "RemoteMeasurer",
    "Rounds",
    "Runner",
    "Say",
    "Survey",
    "Trial",
    "Try",
    "check_gpu",
    "current_conditions",
    "device_name",
    "flushing",
    "race",
    "remote_measurers",
    "require_gpu",
    "timed",
    "workers_for",
]
