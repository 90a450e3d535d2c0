"""What a caller asks of the pipeliner, as one immutable value.

``"auto"`` leaves a choice to the cost model, which may decline and records why. Anything else is an
explicit request: it is honoured or it raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, TypeAlias, TypedDict, get_args

from ..diagnostics import Reason
from ..errors import PlanError
from ..values.released import options as todays
from . import (
    Accumulate,
    Consumers,
    Epilogue,
    KernelPlan,
    Mechanism,
    Reduction,
    StoreMechanism,
)
from .options import (
    AUTO,
    Option,
    check_depth,
    check_roles,
    declared,
    number,
    one_of,
    pair,
    read_depth,
    switch,
)

Auto: TypeAlias = Literal["auto"]
DepthAsked: TypeAlias = "int | Auto | Mapping[str, int]"
Pair: TypeAlias = "tuple[int, int]"
RolesAsked: TypeAlias = "int | Auto"
PdlAsked: TypeAlias = "bool | Auto"
ClusterAsked: TypeAlias = "int | Auto"
InFlightAsked: TypeAlias = "int | Auto"
OperandAsked: TypeAlias = Literal["auto", "shared", "registers"]
AccumulateAsked: TypeAlias = "Auto | Accumulate"
Instruction: TypeAlias = Literal["auto", "simt", "mma", "wgmma"]

MECHANISMS: Final = (AUTO, *get_args(Mechanism))
INSTRUCTIONS: Final = get_args(Instruction)
CLUSTERS: Final = (1, 2, 4, 8)  # CUDA C++ Programming Guide: 8 CTAs on every GPU of sm_90
IN_FLIGHT: Final = (0, 1)
CONSUMERS: Final = (AUTO, *get_args(Consumers))
EPILOGUES: Final = (AUTO, *get_args(Epilogue))
STORES: Final = (AUTO, *get_args(StoreMechanism))


def _check_cluster(name: str, cluster: object) -> None:
    if cluster != AUTO and (type(cluster) is not int or cluster not in CLUSTERS):
        raise PlanError("request.cluster", choices=CLUSTERS, value=repr(cluster))


def _check_in_flight(name: str, steps: object) -> None:
    if steps != AUTO and (type(steps) is not int or steps not in IN_FLIGHT):
        raise PlanError("request.in_flight", choices=IN_FLIGHT, value=repr(steps))


def _check_plan(name: str, plan: object) -> None:
    """A plan is checked by whoever obeys it."""


@dataclass(frozen=True, slots=True)
class Request:
    """Options of one pipelining run, each declared once; ``pipeline`` says what they do.

    ``plan``: a finished plan to obey; it is verified like any other.
    """

    depth: DepthAsked = field(
        default=AUTO,
        metadata=declared(
            Option(
                check_depth,
                read_depth,
                "slots of each ring, or BUFFER=N[,...]",
                "auto, N, BUFFER=N[,...]",
                common=True,
            )
        ),
    )
    mechanism: Auto | Mechanism = field(
        default=AUTO, metadata=one_of(MECHANISMS, "how tiles reach shared memory", common=True)
    )
    instruction: Instruction = field(
        default=AUTO, metadata=one_of(INSTRUCTIONS, "what multiplies", common=True)
    )
    epilogue: Auto | Epilogue = field(
        default=AUTO, metadata=one_of(EPILOGUES, "how the pipeline drains")
    )
    warps: Pair | None = field(default=None, metadata=pair("warps along M and N", "MxN"))
    thread_tile: Pair | None = field(
        default=None, metadata=pair("elements of C of a SIMT thread", "MxN")
    )
    roles: RolesAsked = field(
        default=AUTO,
        metadata=number(check_roles, "consumer warpgroups; 0: no warp specialisation", "auto, N"),
    )
    consumers: Auto | Consumers = field(
        default=AUTO, metadata=one_of(CONSUMERS, "they share each tile, or alternate on tiles")
    )
    cluster: ClusterAsked = field(
        default=AUTO,
        metadata=number(_check_cluster, "CTAs that share what they copy", "auto, 1, 2, 4, 8"),
    )
    store: Auto | StoreMechanism = field(
        default=AUTO, metadata=one_of(STORES, "how accumulators reach memory")
    )
    pdl: PdlAsked = field(
        default=AUTO, metadata=switch("kernels start before the one before them ends")
    )
    reduction: Auto | Reduction = field(
        default=AUTO,
        metadata=one_of(
            (AUTO, *get_args(Reduction)), "where the partial sums of split-K are added"
        ),
    )
    operand: OperandAsked = field(
        default=AUTO,
        metadata=one_of(get_args(OperandAsked), "where wgmma reads its first operand"),
    )
    in_flight: InFlightAsked = field(
        default=AUTO,
        metadata=number(
            _check_in_flight, "steps whose wgmma is still in flight in the next", "auto, 0, 1"
        ),
    )
    accumulate: AccumulateAsked = field(
        default=AUTO,
        metadata=one_of(
            (AUTO, *get_args(Accumulate)), "whether tensor cores sum all of fp8 themselves"
        ),
    )
    plan: KernelPlan | None = field(
        default=None,
        metadata=declared(
            Option(
                _check_plan,
                KernelPlan.from_json,
                "a plan to obey (JSON of `plan --json`)",
                "FILE",
                common=True,
            )
        ),
    )

    def __post_init__(self) -> None:
        """Refuse values that no kernel could honour; PlanError names the option."""
        for name, how in OPTIONS.items():
            how.check(name, getattr(self, name))

    @property
    def atomic_reduction(self) -> bool:
        """Whether partial sums are to be added in the output."""
        if self.plan is not None:
            return any(store.partial_sums for store in self.plan.stores)
        return self.reduction == "atomic"

    def as_dict(self) -> dict[str, Any]:
        """What is asked for, of types that JSON has; PlanError: a whole plan is."""
        if self.plan is not None:
            raise PlanError("request.plan_as_json")
        return {
            field.name: value
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default
        }

    @staticmethod
    def from_dict(asked: Mapping[str, Any]) -> Request:
        """The request that ``as_dict`` gave, through JSON; TypeError names an unknown option."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in asked.items()
        }
        return Request(**values)

    def depth_of(self, buffer: str) -> int | None:
        """Slots asked for ``buffer``, or None when the choice is free."""
        if isinstance(self.depth, Mapping):
            return self.depth.get(buffer)
        return self.depth if isinstance(self.depth, int) else None


OPTIONS: Final[Mapping[str, Option]] = {one.name: one.metadata["option"] for one in fields(Request)}
"""Every option by its name, in the order in which they are declared."""


class OptionsBesideDepth(TypedDict, total=False):
    """The options of ``Request`` but ``depth``, for signatures that name that one themselves."""

    mechanism: Auto | Mechanism
    instruction: Instruction
    epilogue: Auto | Epilogue
    warps: Pair | None
    thread_tile: Pair | None
    roles: RolesAsked
    consumers: Auto | Consumers
    cluster: ClusterAsked
    store: Auto | StoreMechanism
    pdl: PdlAsked
    reduction: Auto | Reduction
    operand: OperandAsked
    in_flight: InFlightAsked
    accumulate: AccumulateAsked
    plan: KernelPlan | None


class Options(OptionsBesideDepth, total=False):
    """The options of ``Request`` as keyword arguments, for signatures that take them all."""

    depth: DepthAsked


def asked(options: Mapping[str, Any]) -> Request:
    """The request that keyword arguments are; those of the release before give a FutureWarning.

    TypeError: there is no such option. PlanError: no kernel could have such a value.
    """
    named = todays(options)
    unknown = next((name for name in named if name not in OPTIONS), None)
    if unknown is not None:
        raise TypeError(Reason("function.option", option=unknown))
    return Request(**named)
