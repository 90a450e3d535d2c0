"""The GPUs that plans are made for, as frozen values; each constant names its source.

Capacities are what the vendor states; latencies and sustained rates come from published
microbenchmarks and stand until they are measured on the GPU at hand. Where nobody has published a
measurement, the constant is derived from a GPU of the same or the next architecture and says so.
Predictions were compared with measurements on an H100 alone. Compared with a second source: SMs,
clocks and memory of A100, V100, T4 and L40S (vendors' tables), L2 latency of V100, and 96 MB of L2
of the L40S's chip (its own tables state 48 or 96). Not compared: the other latencies and rates.

``records_of`` lists each value with its source; ``REFERENCES`` spells sources out.
"""

from .ampere import A100, L40S, RTX_3090, RTX_4090
from .blackwell import B200, RTX_5090
from .described import records_of
from .earlier import GTX_1080_TI, T4, V100
from .file import SUFFIX, MachineFile, MeasuredValue, read_machine, write_machine
from .find import MACHINES, NAMES, machine_for, model_of
from .hopper import H100, H200
from .references import REFERENCES
from .values import MEASURED, VECTOR_BYTES, WARP, Machine, MmaRate, key_of

__all__ = [
    "A100",
    "B200",
    "GTX_1080_TI",
    "H100",
    "H200",
    "L40S",
    "MACHINES",
    "MEASURED",
    "NAMES",
    "REFERENCES",
    "RTX_3090",
    "RTX_4090",
    "RTX_5090",
    "SUFFIX",
    "T4",
    "V100",
    "VECTOR_BYTES",
    "WARP",
    "Machine",
    "MachineFile",
    "MeasuredValue",
    "MmaRate",
    "key_of",
    "machine_for",
    "model_of",
    "read_machine",
    "records_of",
    "write_machine",
]
