"""The front door: a scheduled function in, the same function pipelined out, or a kernel of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .diagnostics import Reason
from .errors import LoweringError, RecordsError
from .kernel.building import compiled_for, pipeline_with
from .kernel.compiled import Kernel, as_module, only_function, plan_of
from .kernel.refined import refined
from .passes.ir.marks import is_marked
from .plan.request import Options, Request, asked
from .records.candidate import default_candidate, is_workload
from .records.functions import AnyWorkload, function_workload
from .records.recorded import Choice, recorded, with_reason
from .records.settings import is_function_of_knobs, recorded_setting
from .targets import cuda_target

if TYPE_CHECKING:
    from typing_extensions import Unpack


def pipeline(
    func: Any,
    target: Any = None,
    **options: Unpack[Options],
) -> Any:
    """The same function, software-pipelined, as TensorIR; its plan is on it (``plan_of``).

    Parameters
    ----------
    func
        A PrimFunc scheduled for CUDA, a TVM Schedule, or an IRModule with one PrimFunc. Copies and
        matmul tiles that are not bound to threads are mapped; what is bound stays as it is.
    target
        ``"a100"``, ``"h100"``, ``"sm_80"`` and the like, a TVM target, or None for the GPU of this
        machine.
    depth
        Slots of every ring, or slots by buffer name. 1: nothing overlaps.
    mechanism
        How tiles move to shared memory: ``tma``, ``cp_async``, ``register`` or ``direct``.
    instruction
        What unbound matmul tiles become: ``simt``, ``mma`` or ``wgmma`` (sm_90a, which an H100 is;
        there it is taken by itself where it is predicted to be no slower).
    epilogue
        ``rolled`` keeps one copy of the compute and guards the loads, ``clamped`` repeats the
        last tile instead of a guard, ``peeled`` copies the compute.
    warps, thread_tile
        Warps along (M, N); rows and columns of a tile that one SIMT thread owns.
    roles
        Consumer warpgroups, which compute by wgmma, beside one producer warp, which copies; 0: no
        warp specialisation.
    consumers
        How the consumer warpgroups of a warp-specialised kernel share work: all of them one tile
        (``cooperative``), or each its own tile of a persistent kernel, so that one stores while
        the other multiplies (``ping-pong``).
    cluster
        CTAs of a cluster, each of which multicasts a part of the tiles that several need, by TMA.
    store
        How the tile of an accumulator reaches global memory: ``direct``, from registers,
        ``tma``, as boxes staged in shared memory, or ``coalesced``: staged likewise, each row then
        stored by neighbouring threads, for rows that are no multiple of 16 bytes apart.
    pdl
        Programmatic dependent launch. True: the function may start while the kernel before it in
        the stream still runs, and lets the next one start as early, where that is launched so too.
        ``"auto"``: only its own kernels overlap, where it has several.
    reduction
        Where the partial sums of split-K are added. ``workspace`` (the default): each is stored,
        and a second kernel adds them in their order. ``atomic``: by TMA in the output itself,
        in the order in which they are done: not the same bits in every run, but of integers.
    operand
        Where wgmma reads its first operand: ``shared`` memory, or ``registers``, to which each warp
        loads its rows.
    in_flight
        How many steps' wgmma is still in flight in the next one, where the threads that multiply
        also copy: 0 or 1. ``"auto"``: 1 where that is predicted to be faster.
    accumulate
        How products of fp8 are summed, of which Hopper's tensor cores cut off what is below some 14
        bits of the sum. ``fast`` (the default): by them alone. ``promoted``: CUDA cores add
        the sums of each step of the loop in float32.
    plan
        A plan to obey, such as an edited one; it is verified like any other.

    Options by their names in the release before still work, with a FutureWarning.

    Raises
    ------
    PlanError, ScheduleRefused, TargetError, LoweringError
        A request that cannot be honoured. What is left ``"auto"`` never raises: where it declines,
        the plan has the reason.
    """
    request = asked(options)
    return pipeline_with(func, target, request)


def build(
    func: Any,
    target: Any = None,
    *,
    db: str | Path | None = None,
    refine: bool = False,
    prove: bool | Literal["auto"] = "auto",
    **options: Unpack[Options],
) -> Kernel:
    """Compile ``func`` through our lowering; nothing runs until something is asked of the kernel.

    ``func``: what ``pipeline`` returned, or anything that ``pipeline`` takes, which is then
    pipelined first, with ``options``. ``target`` defaults to the one it was pipelined for. Or a
    workload such as ``Gemm(...)``: it is built as the fastest candidate in the records ``db``
    (default: what PIPELINER_DB names) or, where it was not tuned or something is asked for by
    ``options``, as the model chooses; the plan says which. ``refine``: depths that are predicted to
    be nearly as fast as the best are all compiled, and the one is taken that is best by what ptxas
    made of it; no GPU is needed, and records are not looked at. With ``db`` a function, or one of
    knobs, is built as the fastest candidate that ``tune`` recorded of it. ``prove``: its ``proof``
    is made at once; ``"auto"``: once nvcc compiles it, beside nvcc, for as long as that takes
    (``kernel.proving`` has what came of it). RecordsError: ``db`` with ``refine``, or for what is
    pipelined already. TypeError: options for that. PlanError: ``refine`` where a depth is asked
    for; what ``pipeline`` raises. LoweringError: ``prove`` is True, and the kernel is refuted, or
    its plan says otherwise than the code; with ``"auto"`` what compiles it raises that, where it is
    refuted.
    """
    kernel = _built(func, target, db, asked(options) if refine else None, options)
    kernel.proving.is_wanted = prove == "auto"
    if prove is True and kernel.proof.wrong:
        raise LoweringError("proof.wrong", said=kernel.proof.wrong)
    return kernel


def _built(
    func: Any, target: Any, db: str | Path | None, refined_by: Request | None, options: Options
) -> Kernel:
    if refined_by is not None:
        return _refined(func, target, db, refined_by)
    if is_workload(func):
        return _build_workload(func, target, asked(options), db)
    if db is not None and is_function_of_knobs(func):
        given = cuda_target(target)
        return _built_as(*recorded_setting(func, given, asked(options), db), given)
    original = function = only_function(as_module(func))
    if is_marked(function) and db is not None:
        raise RecordsError("records.function")
    if db is not None:
        return _build_workload(function_workload(function), target, asked(options), db)
    if not is_marked(function):
        function = pipeline(function, target, **options)
    elif options:
        raise TypeError(Reason("function.pipelined", options=tuple(options)))
    if target is None:
        target = function.attrs.get("target") or plan_of(function).target
    return Kernel(as_module(function), compiled_for(function, target), original=original)


def _refined(func: Any, target: Any, db: str | Path | None, request: Request) -> Kernel:
    if db is not None:
        raise RecordsError("records.refine")
    given = cuda_target(target)
    if is_workload(func):
        func = default_candidate(func, given, request).function(func)
    elif is_marked(only_function(as_module(func))):
        raise TypeError(Reason("refine.pipelined"))
    return refined(func, given, request)


def _build_workload(
    spec: AnyWorkload, target: Any, request: Request, db: str | Path | None
) -> Kernel:
    given = cuda_target(target)
    choice = recorded(spec, given, request, db)
    return _built_as(choice.candidate.function(spec), choice, given)


def _built_as(function: Any, choice: Choice, given: Any) -> Kernel:
    original = only_function(as_module(function))
    function = with_reason(pipeline_with(original, given, choice.candidate.request), choice.why)
    return Kernel(as_module(function), compiled_for(function, given), original=original)
