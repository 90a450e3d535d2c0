"""The KernelPlan: every decision about one kernel as one immutable, printable value.

Passes make and obey it, the cost model fills it, the emulator checks against it, a user may edit it
and hand it back. It travels on the function as the attribute ``pipeliner.plan`` (a JSON string: a
plain Python attribute is lost in an IRModule).

Vocabulary: an *op* is one statement of a pipelined loop's body. At step ``t`` of the pipelined loop
an op of stage ``s`` works on iteration ``t - s``; ops of one step run by ``order``. A *ring* is a
buffer with ``depth`` slots; iteration ``i`` uses slot ``i % depth``.
"""

from .decisions import LaunchPlan, SmemBuffer, SmemPlan, SyncPlan
from .kernel_plan import PLAN_ATTR, PLAN_VERSION, KernelPlan
from .loops import EdgeKind, EdgePlan, Epilogue, LoopPlan, OpKind, OpPlan, Pipe, RingPlan
from .roles import CONSUMER, PRODUCER, Consumers, MbarrierPair, RolePlan
from .tiles import (
    ADDABLE,
    SCALAR,
    Accumulate,
    Cache,
    CopyPlan,
    ElementwisePlan,
    Eviction,
    MatmulPlan,
    Mechanism,
    OperandSource,
    Reduction,
    StoreMechanism,
    StorePlan,
)

__all__ = [
    "ADDABLE",
    "CONSUMER",
    "PLAN_ATTR",
    "PLAN_VERSION",
    "PRODUCER",
    "SCALAR",
    "Accumulate",
    "Cache",
    "Consumers",
    "CopyPlan",
    "EdgeKind",
    "EdgePlan",
    "ElementwisePlan",
    "Epilogue",
    "Eviction",
    "KernelPlan",
    "LaunchPlan",
    "LoopPlan",
    "MatmulPlan",
    "MbarrierPair",
    "Mechanism",
    "OpKind",
    "OpPlan",
    "OperandSource",
    "Pipe",
    "Reduction",
    "RingPlan",
    "RolePlan",
    "SmemBuffer",
    "SmemPlan",
    "StoreMechanism",
    "StorePlan",
    "SyncPlan",
]
