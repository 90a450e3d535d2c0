"""What a command works on: a workload described by options, or a function of the user's own."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...errors import PlanError, RecordsError, WorkloadError
from . import specs
from .usage import RenamedOption, rare

if TYPE_CHECKING:
    from ...diagnostics import Why
    from ...machine import Machine
    from ...plan.request import Request
    from ...schedules.tiles import ChosenTile, GemmTile, LoopTile
    from ...schedules.workloads import Gemm, Spec

DEFAULT_TARGET: Final = "h100"
"""The GPU that is planned for where none is named and none is present."""


_UNSET: Final = ("warps", "thread_tile", "plan")
"""Options that are not asked for where nothing is said; all others say ``auto``."""


@dataclass(frozen=True, slots=True)
class ScheduledFunction:
    """A scheduled function to pipeline.

    ``spec`` is set where it is one of ours, ``tile`` where it is a matmul's; ``cut``: the tile of
    any kind. ``why``: what the plan is to say of the records that it is from, or why it is from
    none.
    """

    function: Any
    target: Any
    request: Request
    spec: Spec | None = None
    tile: GemmTile | None = None
    reference: Any = None
    why: Why = ""
    cut: Any = None

    @property
    def gemm(self) -> Gemm | None:
        """The workload where it is a GEMM."""
        from ...schedules.workloads import Gemm

        return self.spec if isinstance(self.spec, Gemm) else None

    @property
    def title(self) -> str:
        """What a person calls it."""
        if self.spec is None:
            return str(self.function.attrs["global_symbol"])
        return self.spec.title


def configure(parser: argparse.ArgumentParser, *, default: str | None = None) -> None:
    """Add the arguments that say what to work on and what is asked of it."""
    from ...plan.options import AUTO
    from ...plan.request import OPTIONS

    parser.add_argument(
        "workload",
        nargs="?" if default else None,
        default=default,
        help=f"{', '.join(specs.KINDS)}; or file.py:name for a PrimFunc or Schedule, or a function "
        "that returns one",
    )
    specs.configure(parser)
    asked = parser.add_argument_group("what is asked (default: chosen by the cost model)")
    asked.add_argument(
        "--target", help="a100, h100, rtx4090, sm_80, sm_90 ... (default: this GPU, or h100)"
    )
    rare(
        asked.add_argument(
            "--machine", metavar="FILE", help="plan by what `pipeliner calibrate` measured"
        )
    )
    for name, how in OPTIONS.items():
        flag, default = f"--{name.replace('_', '-')}", None if name in _UNSET else AUTO
        action = asked.add_argument(flag, default=default, metavar=how.values, help=how.help)
        if not how.common:
            rare(action)
    asked.add_argument("--parts", dest="reduction", action=RenamedOption, help=argparse.SUPPRESS)


def configure_records(parser: argparse.ArgumentParser) -> None:
    """Add the argument that says where tuned kernels are recorded."""
    parser.add_argument(
        "--db", metavar="FILE", help="records: take what was tuned (default: PIPELINER_DB, if set)"
    )


def configure_refine(parser: argparse.ArgumentParser) -> None:
    """Add the argument that has depths compared by what nvcc makes of them."""
    rare(
        parser.add_argument(
            "--refine",
            action="store_true",
            help="compile the depths that are nearly as fast as the best, and take the one that is "
            "best by the registers and the machine code that ptxas made; needs no GPU, and takes "
            "nothing from records",
        )
    )


def built(work: ScheduledFunction, refine: bool) -> Any:
    """The kernel; ``refine``: with the depth that is best by what nvcc makes of each.

    Raises what ``pipeliner.build`` raises. To be refined, ``work`` must not be from records.
    """
    from ...kernel.building import build_with
    from ...kernel.refined import refined

    if refine:
        return refined(work.function, work.target, work.request)
    return build_with(work.function, work.target, work.request)


def load(
    args: argparse.Namespace, size: int | None = None, *, tuned: bool = True
) -> ScheduledFunction:
    """What the arguments describe; ``size``: make it about that small where they leave it open.

    ``tuned``: where the command takes records, the fastest that they have is taken.
    """
    from ...targets import cuda_target, gpu

    target = cuda_target(target_of(args) or (None if gpu() else DEFAULT_TARGET))
    request = requested(args)
    db = getattr(args, "db", None)
    if getattr(args, "refine", False):
        if db is not None:
            raise RecordsError("records.refine")
        tuned = False
    if args.workload not in specs.KINDS:
        from .user_file import recorded_function, user_function

        if db is not None and tuned:
            function, choice, reference = recorded_function(args.workload, target, request, db)
            asked, why = choice.candidate.request, choice.why
            return ScheduledFunction(function, target, asked, reference=reference, why=why)
        function, reference = user_function(args.workload)
        return ScheduledFunction(function, target, request, reference=reference)
    made = specs.make(args, size)
    chosen = (args.tile, args.splits, args.persistent)
    if not tuned or not hasattr(args, "db") or any(one is not None for one in chosen):
        return scheduled(made, target, request, *chosen)
    return _recorded(made, target, request, db)


def _recorded(spec: Spec, target: Any, request: Request, db: str | None) -> ScheduledFunction:
    """The fastest that records have of a workload, or what the model chooses."""
    from ...records.recorded import recorded
    from ...schedules import GemmTile

    choice = recorded(spec, target, request, db)
    function, asked = choice.candidate.function(spec), choice.candidate.request
    tile = choice.candidate.tile if isinstance(choice.candidate.tile, GemmTile) else None
    cut = choice.candidate.tile
    return ScheduledFunction(function, target, asked, spec, tile, why=choice.why, cut=cut)


def pipelined(work: ScheduledFunction) -> Any:
    """The function, pipelined; raises what ``pipeliner.pipeline`` raises."""
    from ...kernel.building import pipeline_with
    from ...records.recorded import with_reason

    return with_reason(pipeline_with(work.function, work.target, work.request), work.why)


def target_of(args: argparse.Namespace) -> str | None:
    """What is planned for, as far as it is said; WorkloadError: it is said twice."""
    if args.machine is None:
        return None if args.target is None else str(args.target)
    if args.target is not None:
        raise WorkloadError("option.machine_target")
    if not args.machine.endswith(".json"):
        raise WorkloadError("option.json_file", option="machine", value=args.machine)
    return str(args.machine)


def scheduled(
    spec: Spec,
    target: Any,
    request: Request,
    tile: tuple[int, ...] | None = None,
    splits: int | None = None,
    ctas: int | None = None,
) -> ScheduledFunction:
    """One of our workloads with its tile, as for ``tile_of``."""
    from ...schedules import GemmTile
    from ...schedules.scheduled import scheduled as cut_by

    made, why = tile_of(spec, target, request, tile, splits, ctas)
    of_matmul = made if isinstance(made, GemmTile) else None
    function = cut_by(spec, made)
    return ScheduledFunction(function, target, request, spec, of_matmul, why=why, cut=made)


def tile_of(
    spec: Spec,
    target: Any,
    request: Request,
    tile: tuple[int, ...] | None,
    splits: int | None,
    ctas: int | None,
) -> tuple[ChosenTile, Why]:
    """The tile of one of our workloads, and why; what is None is chosen for the machine.

    ``splits``: of the reduction (split-K). ``ctas``: of a persistent kernel; 0: one for each tile.
    Where clusters are asked for, a few waves of tiles are a grid of whole ones.
    """
    from ...kernel.chosen_tile import chosen_tile
    from ...machine import machine_for
    from ...schedules import AttentionTile, GemmTile, GroupedGemm, RowGemm, RowTile
    from ...schedules.tile_space import contraction_of, in_asked_clusters

    made: ChosenTile
    if tile is None:
        chosen = chosen_tile(spec, target, request, splits)
        made, why = chosen.tile, chosen.why
    else:
        machine = machine_for(target)
        made, why = _given_tile(spec, machine, tile, splits), ""
        size = request.cluster
        if isinstance(made, GemmTile) and not ctas and isinstance(size, int) and size > 1:
            made = in_asked_clusters(contraction_of(spec, made), made, machine, size)
    if ctas is None:
        return made, why
    if isinstance(made, RowTile) and isinstance(spec, (RowGemm, GroupedGemm)):
        return replace(made, persistent=ctas or None), why
    if not isinstance(made, (GemmTile, AttentionTile)):
        raise WorkloadError("option.persistent", workload=spec.name, count=ctas)
    return replace(made, persistent=ctas or None), why


def _given_tile(
    spec: Spec, machine: Machine, tile: tuple[int, ...], splits: int | None
) -> GemmTile | LoopTile:
    """The tile of these sizes; WorkloadError: it is none of the workload, or too large."""
    from ...schedules import Attention, AttentionTile, ConvTile, Gemm, GemmTile, RowTile
    from ...schedules.loops.attention_cut import is_grouped
    from ...schedules.workloads import LOOPS, PackedGemm

    sizes = "MN" if isinstance(spec, LOOPS) else "MNK"
    if len(tile) != len(sizes):
        raise WorkloadError("option.tile_sizes", workload=spec.name, sizes="x".join(sizes))
    if isinstance(spec, Attention):
        m, n = tile
        return AttentionTile(m, n, splits or 1, grouped=is_grouped(spec, m))
    if isinstance(spec, PackedGemm):
        m, n = tile
        return RowTile(m, n, splits=splits or 1)
    if isinstance(spec, LOOPS):
        if splits not in (None, 1):
            raise WorkloadError("split.no_matmul", workload=spec.name)
        return RowTile(*tile)
    m, n, k = tile
    _check_slot(spec, machine, m, n, k)
    kind = GemmTile if isinstance(spec, Gemm) else ConvTile
    return kind(m, n, k, splits=1 if splits is None else splits)


def _check_slot(spec: Spec, machine: Machine, m: int, n: int, k: int) -> None:
    """WorkloadError: one slot of both operands, which all tiles pass through, is too large."""
    from ...instructions.dtypes import element_bytes

    size = element_bytes(spec.dtype)
    slot = (m * size + n * (1 if getattr(spec, "weights", "") else size)) * k
    if slot > machine.smem_per_cta:
        raise WorkloadError(
            "option.tile",
            m=m,
            n=n,
            k=k,
            bytes=slot,
            machine=machine.name,
            most=machine.smem_per_cta,
        )


def requested(args: argparse.Namespace) -> Request:
    """What the arguments ask of the pipeliner."""
    from ...plan.request import OPTIONS, Request

    asked: dict[str, Any] = {}
    for name, how in OPTIONS.items():
        text = getattr(args, name)
        if text is not None:
            asked[name] = how.read(_read(Path(text)) if name == "plan" else text)
    return Request(**asked)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as err:
        raise PlanError("file.read", path=str(path), why=err.strerror) from err
