"""How many registers a thread of a kernel takes, before ptxas is asked: as far as its IR says.

    registers = BASE_REGISTERS + those of its buffers in registers, at most what is allowed

``__launch_bounds__`` allows as many as let the CTAs that it names, one if it names none, run on an
SM. A kernel whose warpgroups exchange registers (setmaxnreg) starts with all of these. Buffers that
are never live together count twice, and those that ptxas puts into local memory count too: it is an
estimate.
"""

from __future__ import annotations

import math
from typing import Any, Final

import tvm_ffi
from tvm import ir, tirx

from ...cost.occupancy import occupancy
from ...instructions.registers import BASE_REGISTERS, REGISTER_UNIT
from ...machine import WARP, Machine
from ..base.dtypes import numpy_dtype, split_lanes
from ..memory.spaces import is_local_scope

_MIN_BLOCKS: Final = "tirx.launch_bounds_min_blocks_per_sm"
"""The attribute that TVM prints as the second argument of ``__launch_bounds__``."""

_REGISTER_BYTES: Final = 4


def registers_of(func: Any, machine: Machine, threads: int) -> int:
    """Registers of each thread of the device function ``func``, launched with ``threads``."""
    taken = 0
    exchanged = False

    def allocated(stmt: Any) -> None:
        nonlocal taken
        taken += _registers(stmt.buffer)

    def called(call: Any) -> None:
        nonlocal exchanged
        exchanged = exchanged or "setmaxnreg" in str(getattr(call.op, "name", ""))

    tvm_ffi.structural_walk(func.body, [(tirx.AllocBuffer, allocated), (ir.Call, called)])
    most = allowed(machine, threads, int((func.attrs or {}).get(_MIN_BLOCKS, 1)))
    return most if exchanged else min(int(BASE_REGISTERS) + taken, most)


def allowed(machine: Machine, threads: int, ctas: int) -> int:
    """The most registers of a thread with which so many CTAs run on an SM."""
    most, unit = machine.max_registers_per_thread, int(REGISTER_UNIT)
    counts: list[int] = [most, *range(most // unit * unit, 0, -unit)]
    for registers in counts:
        if occupancy(machine, threads, registers, 0).ctas >= ctas:
            return registers
    return unit


def _registers(buffer: Any) -> int:
    """Registers of a thread that hold its part of ``buffer``."""
    scope = str(buffer.scope())
    shared_out = scope.startswith("wmma")  # among the lanes of a warp
    if not (is_local_scope(scope) or shared_out):
        return 0
    base, lanes = split_lanes(buffer.dtype)
    sizes = [int(extent.value) for extent in buffer.shape if hasattr(extent, "value")]
    if len(sizes) < len(buffer.shape):
        return 0
    nbytes = math.prod(sizes) * lanes * numpy_dtype(base).itemsize
    return -(-nbytes // (_REGISTER_BYTES * (WARP if shared_out else 1)))
