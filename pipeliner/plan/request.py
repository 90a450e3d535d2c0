"""What a caller asks of the pipeliner, as one immutable value.

``"auto"`` leaves a choice to the cost model, which may decline and records why. Anything else is an
explicit request: it is honoured or it raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, TypeAlias

from ..errors import PlanError
from . import (
    Accumulate,
    Consumers,
    Epilogue,
    KernelPlan,
    Mechanism,
    Reduction,
    Source,
    StoreMechanism,
)

Depth: TypeAlias = "int | Literal['auto'] | Mapping[str, int]"
Tile: TypeAlias = "tuple[int, int]"
Roles: TypeAlias = "int | Literal['auto']"
Pdl: TypeAlias = "bool | Literal['auto']"
Cluster: TypeAlias = "int | Literal['auto']"
OperandAsked: TypeAlias = "Literal['auto'] | Source"
AccumulateAsked: TypeAlias = "Literal['auto'] | Accumulate"
Instruction: TypeAlias = "Literal['auto', 'simt', 'mma', 'wgmma']"

MECHANISMS: Final = ("auto", "tma", "cp_async", "register", "direct")
INSTRUCTIONS: Final = ("auto", "simt", "mma", "wgmma")
CLUSTERS: Final = (1, 2, 4, 8)  # CUDA C++ Programming Guide: 8 CTAs on every GPU of sm_90
STORES: Final = ("auto", "direct", "tma")
CONSUMERS: Final = ("auto", "cooperative", "ping-pong")
OPERANDS: Final = ("auto", "shared", "registers")
ACCUMULATES: Final = ("auto", "fast", "promoted")
REDUCTIONS: Final = ("auto", "workspace", "atomic")
EPILOGUES: Final = ("auto", "rolled", "clamped", "peeled")


@dataclass(frozen=True, slots=True)
class Request:
    """Options of one pipelining run.

    ``depth``: slots of every ring, or slots by buffer name.
    ``mechanism``: how tile copies move. ``instruction``: what unbound matmul tiles become.
    ``epilogue``: ``rolled`` keeps one guarded copy of the compute; ``clamped`` too, but overrunning
    loads are clamped to the last tile, not guarded; ``peeled`` copies it for each drain step.
    ``warps``: warps along (M, N). ``thread_tile``: rows and columns that a SIMT thread owns.
    ``roles``: consumer warpgroups of a warp-specialised kernel, beside one producer warp; 0: not
    warp-specialised. ``consumers``: consumer warpgroups share each tile (``cooperative``), or two
    groups of them alternate on the tiles of a persistent kernel (``ping-pong``). ``cluster``: CTAs
    of a cluster, of which each multicasts a part of what all need. ``store``: how the tile of an
    accumulator reaches global memory. ``pdl``: whether kernels start before the one before them
    ends (programmatic dependent launch). ``reduction``: where the partial sums of split-K are
    added: in a ``workspace``, in their order, or (``atomic``) in the output as they come, which is
    another order in every run. ``operand``: where wgmma reads its first operand. ``accumulate``:
    tensor cores add up all products of fp8 (``fast``, what ``auto`` takes), cutting off what is
    below some 14 bits, or those of one step alone, whose sums threads add in float32
    (``promoted``). ``plan``: a finished plan to obey; it is verified like any other.
    """

    depth: Depth = "auto"
    mechanism: Literal["auto"] | Mechanism = "auto"
    instruction: Instruction = "auto"
    epilogue: Literal["auto"] | Epilogue = "auto"
    warps: Tile | None = None
    thread_tile: Tile | None = None
    roles: Roles = "auto"
    consumers: Literal["auto"] | Consumers = "auto"
    cluster: Cluster = "auto"
    store: Literal["auto"] | StoreMechanism = "auto"
    pdl: Pdl = "auto"
    reduction: Literal["auto"] | Reduction = "auto"
    operand: OperandAsked = "auto"
    accumulate: AccumulateAsked = "auto"
    plan: KernelPlan | None = None

    def __post_init__(self) -> None:
        """Refuse values that no kernel could honour; PlanError names the option."""
        _check_depth(self.depth)
        _check_choice("mechanism", self.mechanism, MECHANISMS)
        _check_choice("instruction", self.instruction, INSTRUCTIONS)
        _check_choice("epilogue", self.epilogue, EPILOGUES)
        _check_choice("store", self.store, STORES)
        _check_choice("consumers", self.consumers, CONSUMERS)
        _check_choice("reduction", self.reduction, REDUCTIONS)
        _check_choice("operand", self.operand, OPERANDS)
        _check_choice("accumulate", self.accumulate, ACCUMULATES)
        _check_pair("warps", self.warps)
        _check_pair("thread_tile", self.thread_tile)
        _check_roles(self.roles)
        _check_cluster(self.cluster)
        _check_early(self.pdl)

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


def _check_depth(depth: object) -> None:
    if isinstance(depth, Mapping):
        for name, slots in depth.items():
            _check_slots(f"depth of '{name}'", slots)
    elif depth != "auto":
        _check_slots("depth", depth)


def _check_slots(what: str, slots: object) -> None:
    if isinstance(slots, bool) or not isinstance(slots, int) or slots < 1:
        raise PlanError("request.slots", option=what, value=repr(slots))


def _check_choice(what: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise PlanError("request.choice", option=what, choices=choices, value=repr(value))


def _check_roles(roles: object) -> None:
    if roles != "auto" and (isinstance(roles, bool) or not isinstance(roles, int) or roles < 0):
        raise PlanError("request.roles", value=repr(roles))


def _check_cluster(cluster: object) -> None:
    if cluster != "auto" and (type(cluster) is not int or cluster not in CLUSTERS):
        raise PlanError("request.cluster", choices=CLUSTERS, value=repr(cluster))


def _check_early(pdl: object) -> None:
    if pdl != "auto" and not isinstance(pdl, bool):
        raise PlanError("request.pdl", value=repr(pdl))


def _check_pair(what: str, pair: object) -> None:
    if pair is None:
        return
    sizes = pair if isinstance(pair, tuple) else ()
    if len(sizes) != 2 or any(type(size) is not int or size < 1 for size in sizes):
        raise PlanError("request.pair", option=what, value=repr(pair))
