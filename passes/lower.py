"""Define the TVM pipeline "pipeliner": TVM's own s_tir list with our passes in it.

    tvm.compile(mod, target, tir_pipeline="pipeliner")

Importing this module registers it. It is right for every function: kernels that are pipelined,
kernels that are left alone, and functions that ``SoftwarePipeline`` has already handled. Functions
for the CPU and for GPUs other than CUDA's get TVM's own list, pass for pass. ``preparation`` runs
TVM's prefix, the *slot* runs our passes, ``suffix`` lowers to host and device functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import pipeline as stock

from ..plan.request import Request
from ..proving.driver import Compilation
from .device.addresses import split_addresses
from .device.alignment import show_alignment
from .device.check_arguments import check_arguments, take_addresses
from .device.counters import has_steady_loop, roll_counters
from .device.flattened import flatten_indices
from .device.joined_guards import join_guards
from .device.kept_rank import keep_rank
from .device.packed_bytes import pack_bytes
from .device.signed import keep_signed
from .device.typed_pointers import type_pointers
from .ir.marks import is_kernel, is_left, is_marked
from .ir.wide_indices import check_extents, widen_indices, widen_offsets
from .pipeline import pipeline_function
from .prepare.allocations import give_to_blocks
from .prepare.match_buffers import inline_matches
from .prepare.name_memory import name_memory
from .prepare.partial_sums import add_partial_sums
from .prepare.pinned_rings import pin_rings, unpin_rings
from .schedule.annotations import annotated_request
from .smem.arena import apply_arena
from .smem.shared_names import name_shared
from .steps import function_pass, module_pass

PIPELINE: Final = "pipeliner"
"""The name for ``tvm.compile(..., tir_pipeline=...)``."""


def slot_passes(request: Request) -> list[Any]:
    """Return the passes that make a marked kernel of a scheduled one: TVM's prefix and our slot.

    A marked function must not see the prefix again: compaction would take a ring whose uses all lie
    in one loop for a buffer of one iteration.
    """
    return [AddPartialSums(request), *preparation(), Pipeline(request)]


def preparation() -> list[Any]:
    """Return the passes before the slot: allocations, views, and TVM's prefix without rings."""
    return [
        function_pass(give_to_blocks),
        function_pass(inline_matches),
        function_pass(name_memory),
        function_pass(pin_rings),
        *prefix(ours=True),
        function_pass(unpin_rings),
    ]


def prefix(*, ours: bool) -> list[Any]:
    """Return TVM's passes before the slot: blocks opaque, tiles exact, threads unified.

    ``ours``: leave out those that do what one of our passes does.
    """
    transform = s_tir.transform
    return [
        transform.CanonicalizeLoop(),
        transform.LowerCrossThreadReduction(),
        transform.LowerInitBlock(),
        transform.PlanAndUpdateBufferAllocationLocation(),
        transform.ConvertBlocksToOpaque(),
        transform.LiftThreadBinding(),
        *_unless(not ours, lambda: function_pass(widen_indices)),
        *_unless(ours, transform.ManifestSharedMemoryLocalStage),
        transform.CompactBufferAllocation(),
        transform.LowerAutoCopy(),
        transform.UnifyThreadBinding(),
        transform.LowerMatchBuffer(),
        transform.StmtSimplify(),
        *_unless(ours, transform.InjectPermutedLayout),
        transform.AnnotateIrregularLoop(),
        *_unless(ours, transform.InjectSoftwarePipeline),
    ]


def suffix() -> list[Any]:
    """Return TVM's passes after the slot, down to host and device functions."""
    config = tvm.transform.PassContext.current().config
    transform = s_tir.transform

    def off(name: str) -> bool:
        return not config.get(name, False)

    no_async = off("tirx.use_async_copy")
    no_ldg32 = off("tirx.s_tir.ldg32")
    no_bounds = off("tirx.instrument_bound_checkers")
    no_profile = off("tirx.instrument_lwp")
    return [
        transform.TransformMmaBufferLayout(),
        transform.LowerOpaqueBlock(),
        marked(
            [
                function_pass(widen_offsets),
                function_pass(check_extents),
                function_pass(flatten_indices),
            ]
        ),
        unmarked([tirx.transform.FlattenBuffer()]),
        tirx.transform.BF16ComputeLegalize(),
        tirx.transform.NarrowDataType(32),
        transform.LoopPartition(),
        tirx.transform.VectorizeLoop(off("tirx.disable_vectorize")),
        transform.InjectVirtualThread(),
        unmarked([transform.InjectDoubleBuffer()]),
        function_pass(apply_arena),
        *_unless(not off("tirx.disable_storage_rewrite"), tirx.transform.StorageRewrite),
        *_unless(no_async, lambda: unmarked([transform.LowerAsyncDMA()])),
        transform.HoistIfThenElse(),
        tirx.transform.UnrollLoop(),
        transform.RenormalizeSplitPattern(),
        tirx.transform.StmtSimplify(),
        tirx.transform.RemoveNoOp(),
        transform.RewriteUnsafeSelect(),
        *_unless(no_bounds, transform.InstrumentBoundCheckers),
        *_unless(no_ldg32, lambda: transform.InjectPTXLDG32(True)),
        unmarked(_unless(not off("tirx.disable_cse_tir"), tirx.transform.CommonSubexprElim)),
        *_unless(no_profile, transform.InstrumentProfileIntrinsics),
        tirx.transform.FP8ComputeLegalize(),
        transform.VerifyVTCMLimit(),
        transform.LowerVtcmAlloc(),
        tirx.transform.VerifyMemory(),
        tirx.transform.AnnotateEntryFunc(),
        unmarked([transform.ThreadSync("shared"), transform.ThreadSync("shared.dyn")]),
        transform.ThreadSync("warp"),
        transform.InferFragment(),
        transform.LowerThreadAllreduce(),
        *_unless(no_async, lambda: unmarked([transform.InjectPTXAsyncCopy()])),
        *_unless(no_ldg32, transform.InjectPTXLDG32),
        unmarked([transform.MergeSharedMemoryAllocations()]),
        tirx.transform.SplitHostDevice(),
        module_pass(check_arguments),
        tirx.transform.MakePackedAPI(),
        tirx.transform.FP8StorageLegalize(),
        tirx.transform.BF16StorageLegalize(),
        function_pass(take_addresses),
    ]


def finalize_device() -> Any:
    """Return TVM's last passes on device functions, with ours behind the last that simplifies.

    That one inlines every named integer, so common subexpressions are named anew after it.
    """
    config = tvm.transform.PassContext.current().config
    no_cse = config.get("tirx.disable_cse_tir", False)
    ours = [
        function_pass(split_addresses),
        function_pass(roll_counters),
        *_unless(no_cse, tirx.transform.CommonSubexprElim),
        function_pass(keep_signed),
        function_pass(show_alignment),
    ]
    return tvm.transform.Sequential(
        [
            tirx.transform.LowerWarpMemory(),
            tirx.transform.StmtSimplify(),
            pipelined(ours),
            function_pass(join_guards),
            function_pass(pack_bytes),
            function_pass(type_pointers),
            tirx.transform.LowerIntrin(),
            function_pass(keep_rank),
            module_pass(name_shared),
        ]
    )


def AddPartialSums(request: Request) -> Any:
    """Return ``add_partial_sums`` as a pass, for scheduled functions that ask for it."""

    def run(func: Any) -> Any:
        return add_partial_sums(func) if _asked(func, request).atomic_reduction else func

    return function_pass(add_partial_sums, run)


def Pipeline(request: Request) -> Any:
    """Return ``pipeline_function`` as a pass, for functions that have been through the prefix."""

    def run(func: Any) -> Any:
        return pipeline_function(func, target_of(func), _asked(func, request))

    return function_pass(pipeline_function, run)


def _asked(func: Any, request: Request) -> Request:
    """Return ``request``, or what a tuner has annotated ``func`` with if nothing is requested."""
    return annotated_request(func) if request == Request() else request


def target_of(func: Any) -> Any | None:
    """Return the target that a function is bound to, else the one in scope, else None."""
    bound = (func.attrs or {}).get("target", None)
    return tvm.target.Target.current() if bound is None else bound


def apply_where(mod: Any, wanted: Callable[[Any], bool], passes: Sequence[Any]) -> Any:
    """Return ``mod`` with ``passes`` run on the functions that are ``wanted``."""
    some = {var: func for var, func in mod.functions.items() if wanted(func)}
    if not some:
        return mod
    done = tvm.transform.Sequential(list(passes))(tvm.IRModule(some, attrs=mod.attrs))
    return tvm.IRModule({**mod.functions, **done.functions}, attrs=mod.attrs)


def unmarked(passes: Sequence[Any]) -> Any:
    """Return TVM's ``passes``, run only on functions that ours did not handle or left to them."""

    @tvm.transform.module_pass(opt_level=0, name="pipeliner.Unmarked")
    def run(mod: Any, ctx: Any) -> Any:
        return apply_where(mod, lambda func: not is_marked(func) or is_left(func), passes)

    return run


def marked(passes: Sequence[Any]) -> Any:
    """Return ``passes``, run only on functions that ours handled."""

    @tvm.transform.module_pass(opt_level=0, name="pipeliner.Marked")
    def run(mod: Any, ctx: Any) -> Any:
        return apply_where(mod, is_marked, passes)

    return run


def pipelined(passes: Sequence[Any]) -> Any:
    """Return ``passes``, run only on functions with a steady loop."""

    @tvm.transform.module_pass(opt_level=0, name="pipeliner.Pipelined")
    def run(mod: Any, ctx: Any) -> Any:
        return apply_where(mod, has_steady_loop, passes)

    return run


def Slot() -> Any:
    """Return the passes up to and including the slot: ours for CUDA kernels, else TVM's."""

    @tvm.transform.module_pass(opt_level=0, name="pipeliner.Slot")
    def run(mod: Any, ctx: Any) -> Any:
        mod = apply_where(mod, is_fresh_kernel, slot_passes(Request()))
        return apply_where(mod, lambda func: not is_marked(func), prefix(ours=False))

    return run


def is_fresh_kernel(func: Any) -> bool:
    """Whether ``func`` is a CUDA kernel that has not been through the slot."""
    return not is_marked(func) and is_kernel(func, target_of(func))


def pipeline() -> tuple[Any, Callable[[], Any], Callable[[], Any]]:
    """Return what TVM asks of a registered pipeline: passes, and those for host and device."""
    compilation = Compilation()

    @tvm.transform.module_pass(opt_level=0, name=PIPELINE)
    def run(mod: Any, ctx: Any) -> Any:
        steps = suffix()
        behind = [str(step.info.name) for step in steps].index(check_arguments.tvm_name) + 1
        parted = tvm.transform.Sequential([Slot(), *steps[:behind]])(mod)
        compilation.parted(parted)
        return tvm.transform.Sequential(steps[behind:])(parted)

    def finalize_host() -> Any:
        compilation.host_is_final()
        return stock.finalize_host_passes()

    def finalize_kernels() -> Callable[[Any], Any]:
        return lambda mod: compilation.kernels_are_final(finalize_device()(mod))

    return run, finalize_host, finalize_kernels


def _unless(skip: bool, make: Callable[[], Any]) -> list[Any]:
    return [] if skip else [make()]


tirx.register_tir_pipeline(PIPELINE, pipeline)
