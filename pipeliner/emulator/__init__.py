"""CPU emulator of lowered device TIR: the IR that CUDA is printed from, run on numpy and judged.

``lower_for_emulation`` gives the form to run, ``emulate`` runs it, cluster by cluster, those that
wait for others of their launch beside them (``residents``): asynchronous copies land as late as
the waits allow, warps interleave in a chosen order, shared memory starts poisoned, and every access
is checked against happens-before, bounds and alignment.
It knows what lowering emits for sm_80 (cp.async, ldmatrix, mma) and sm_90 (TMA, mbarriers, wgmma,
clusters); an operation that it does not know is an error that names it. Kernels on arrays larger
than memory run on ``sparse`` ones, CTA by CTA.
"""

from ..errors import EmulatorError
from .base.report import CtaStats, Emulation, Hazard, Life, Site
from .base.sparse import sparse
from .emulate import emulate
from .lower import lower_for_emulation

__all__ = [
    "CtaStats",
    "Emulation",
    "EmulatorError",
    "Hazard",
    "Life",
    "Site",
    "emulate",
    "lower_for_emulation",
    "sparse",
]
