"""What meta_schedule's own rules for tensor cores make of a product, through our pipeline."""

from __future__ import annotations

import pytest
import tvm
from tvm import te

import pipeliner
from pipeliner import meta
from pipeliner.bench.peers import tensor_intrinsics
from pipeliner.verification.verdict import verify

pytest.importorskip("psutil", reason="meta_schedule needs psutil")

from tvm.s_tir import meta_schedule as ms

SIZE = 64
RULES = "cuda-tensorcore"
FRAGMENTS = "wmma::load_matrix_sync"


def product():
    """Operands float16, sums float32, the result float16: tiles of two types in shared memory."""
    a, b = (te.placeholder((SIZE, SIZE), "float16", name=name) for name in "AB")
    k = te.reduce_axis((0, SIZE), name="k")
    sums = te.compute(
        (SIZE, SIZE),
        lambda i, j: te.sum(a[i, k].astype("float32") * b[j, k].astype("float32"), axis=k),
        name="D",
    )
    out = te.compute(sums.shape, lambda *at: sums(*at).astype("float16"), name="C")
    function = te.create_prim_func([a, b, out]).with_attr("global_symbol", "main")
    return tvm.IRModule({"main": function})


@pytest.fixture(scope="module")
def candidates():
    tensor_intrinsics()
    asked = {"kind": "cuda", "max_shared_memory_per_block": 49152, "thread_warp_size": 32}
    target = tvm.target.Target({**dict(meta.target("h100").attrs), **asked}, host="llvm")
    context = ms.TuneContext(
        mod=product(),
        target=target,
        space_generator=ms.space_generator.PostOrderApply(
            sch_rules=RULES, postprocs=RULES, mutator_probs=RULES
        ),
        search_strategy="replay-trace",
        rand_state=1,
    )
    space = context.generate_design_space()
    model = ms.cost_model.RandomModel()
    context.search_strategy.pre_tuning(4, 4, space, ms.database.MemoryDatabase(), model)
    return [one.sch.mod for one in context.search_strategy.generate_measure_candidates()]


@pytest.mark.nvcc
def test_its_wmma_kernels_compile_and_are_right(candidates):
    """TVM's own lowering refuses most: their pointers are of another type than the allocation."""
    assert len(candidates) == 4
    pipelined = 0
    for mod in candidates:
        kernel = pipeliner.build(mod, "h100")
        assert FRAGMENTS in kernel.cuda

        def right(a, b, _):
            return (a.astype("float64") @ b.astype("float64").T).astype("float16")

        verdict = verify(kernel, reference=right, timings=("late",), orders=("random",))
        assert verdict.ok, verdict.hazards
        pipelined += any(loop.pipelined for loop in kernel.plan.loops)
    assert pipelined
