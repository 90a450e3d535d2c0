"""Loops annotated the way TVM's own tests and schedules do, one level and two.

``software_pipeline_stage`` / ``order`` hold one entry for each statement of the body; a statement
that is itself an annotated loop counts as three, its prologue, steady state and epilogue, because TVM
expands the inner loop first.
"""

from __future__ import annotations

import tvm
from tvm.script import tirx as T

from .case import Case, Pipelined, uniform


@T.prim_func(s_tir=True)
def simple_compute(A: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32")):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for tx in T.thread_binding(0, 16, thread="threadIdx.x"):
        for i in T.serial(
            0,
            16,
            annotations={"software_pipeline_stage": [0, 1], "software_pipeline_order": [0, 1]},
        ):
            with T.sblock("compute"):
                T.reads(A[tx, i])
                T.writes(C[tx, i])
                B = T.sblock_alloc_buffer((16, 1), dtype="float32", scope="shared")
                with T.sblock():
                    T.reads(A[tx, i])
                    T.writes(B[tx, 0])
                    B[tx, 0] = A[tx, i] * T.float32(2)
                with T.sblock():
                    T.reads(B[tx, 0])
                    T.writes(C[tx, i])
                    C[tx, i] = B[tx, 0] + T.float32(1)


@T.prim_func(s_tir=True)
def three_stages(A: T.Buffer((16, 16), "float32"), D: T.Buffer((16, 16), "float32")):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for tx in T.thread_binding(0, 16, thread="threadIdx.x"):
        for i in T.serial(
            0,
            16,
            annotations={
                "software_pipeline_stage": [0, 1, 2],
                "software_pipeline_order": [0, 2, 1],
            },
        ):
            with T.sblock("compute"):
                T.reads(A[tx, i])
                T.writes(D[tx, i])
                B = T.sblock_alloc_buffer((16, 1), dtype="float32", scope="shared")
                C = T.sblock_alloc_buffer((16, 1), dtype="float32", scope="shared")
                with T.sblock():
                    T.reads(A[tx, i])
                    T.writes(B[tx, 0])
                    B[tx, 0] = A[tx, i] * T.float32(2)
                with T.sblock():
                    T.reads(B[tx, 0])
                    T.writes(C[tx, 0])
                    C[tx, 0] = B[tx, 0] + T.float32(2)
                with T.sblock():
                    T.reads(C[tx, 0])
                    T.writes(D[tx, i])
                    D[tx, i] = C[tx, 0] + T.float32(1)


@T.prim_func(s_tir=True)
def async_two_inputs(
    A: T.Buffer((16, 16), "float32"),
    B: T.Buffer((16, 16), "float32"),
    C: T.Buffer((16, 16), "float32"),
):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for tx in T.thread_binding(0, 16, thread="threadIdx.x"):
        for i in T.serial(
            0,
            16,
            annotations={
                "software_pipeline_stage": [0, 0, 3],
                "software_pipeline_order": [0, 2, 1],
                "software_pipeline_async_stages": [0],
            },
        ):
            with T.sblock("compute"):
                T.reads(A[tx, i], B[tx, i])
                T.writes(C[tx, i])
                A_shared = T.sblock_alloc_buffer((16, 1), dtype="float32", scope="shared")
                B_shared = T.sblock_alloc_buffer((16, 1), dtype="float32", scope="shared")
                with T.sblock():
                    T.reads(A[tx, i])
                    T.writes(A_shared[tx, 0])
                    A_shared[tx, 0] = A[tx, i]
                with T.sblock():
                    T.reads(B[tx, i])
                    T.writes(B_shared[tx, 0])
                    B_shared[tx, 0] = B[tx, i]
                with T.sblock():
                    T.reads(A_shared[tx, 0], B_shared[tx, 0])
                    T.writes(C[tx, i])
                    C[tx, i] = A_shared[tx, 0] + B_shared[tx, 0]


@T.prim_func(s_tir=True)
def dynamic_trip(a: T.handle, c: T.handle, n: T.int32):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    A = T.match_buffer(a, (16, n), "float32")
    C = T.match_buffer(c, (16, n), "float32")
    for tx in T.thread_binding(0, 16, thread="threadIdx.x"):
        for i in T.serial(
            0,
            n,
            annotations={
                "software_pipeline_stage": [0, 2],
                "software_pipeline_order": [0, 1],
                "software_pipeline_async_stages": [0],
            },
        ):
            with T.sblock("compute"):
                T.reads(A[tx, i])
                T.writes(C[tx, i])
                B = T.sblock_alloc_buffer((16, 1), dtype="float32", scope="shared")
                with T.sblock():
                    T.reads(A[tx, i])
                    T.writes(B[tx, 0])
                    B[tx, 0] = A[tx, i]
                with T.sblock():
                    T.reads(B[0:16, 0])
                    T.writes(C[tx, i])
                    C[tx, i] = B[15 - tx, 0] + T.float32(1)


@T.prim_func(s_tir=True)
def two_levels(A: T.Buffer((16, 16, 16), "float32"), C: T.Buffer((16, 16, 16), "float32")):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for tx in T.thread_binding(0, 16, thread="threadIdx.x"):
        for i in T.serial(
            0,
            16,
            annotations={
                "software_pipeline_stage": [0, 1, 1, 1],
                "software_pipeline_order": [0, 1, 2, 3],
            },
        ):
            with T.sblock("compute"):
                T.reads(A[tx, i, 0:16])
                T.writes(C[tx, i, 0:16])
                A_shared = T.sblock_alloc_buffer((16, 1, 16), dtype="float32", scope="shared")
                for j in T.serial(0, 16):
                    with T.sblock("load"):
                        T.reads(A[tx, i, j])
                        T.writes(A_shared[tx, 0, j])
                        A_shared[tx, 0, j] = A[tx, i, j]
                for j in T.serial(
                    0,
                    16,
                    annotations={
                        "software_pipeline_stage": [0, 1],
                        "software_pipeline_order": [0, 1],
                    },
                ):
                    with T.sblock("inner"):
                        T.reads(A_shared[tx, 0, j])
                        T.writes(C[tx, i, j])
                        B = T.sblock_alloc_buffer((16, 1, 1), dtype="float32", scope="local")
                        with T.sblock():
                            T.reads(A_shared[tx, 0, j])
                            T.writes(B[tx, 0, 0])
                            B[tx, 0, 0] = A_shared[tx, 0, j] * T.float32(2)
                        with T.sblock():
                            T.reads(B[tx, 0, 0])
                            T.writes(C[tx, i, j])
                            C[tx, i, j] = B[tx, 0, 0] + T.float32(1)


def gemm(size: int, k_size: int):
    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer((size, k_size), "float32"),
        B: T.Buffer((k_size, size), "float32"),
        C: T.Buffer((size, size), "float32"),
    ):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for i, j, k in T.grid(size, size, k_size):
            with T.sblock("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    return main


def simt_gemm(
    stage,
    order,
    asynchronous=(),
    *,
    func=None,
    scope="shared",
    vector=4,
    vectorize=True,
):
    """A SIMT GEMM with two bound copies and an annotated K loop: TVM's tutorial form.

    ``stage`` empty: no annotation. ``asynchronous``: the stages whose copies are asynchronous.
    """
    sch = tvm.s_tir.Schedule(func or gemm(32, 64))
    C = sch.get_sblock("C")
    i, j, k = sch.get_loops(C)
    by, ty, yi = sch.split(i, [None, 8, 4])
    bx, tx, xi = sch.split(j, [None, 8, 4])
    ko, ki = sch.split(k, [None, 8])
    sch.reorder(by, bx, ty, tx, ko, ki, yi, xi)
    sch.reverse_compute_at(sch.cache_write(C, 0, "local"), tx)
    axes = ("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x")
    for axis, thread in zip((by, bx, ty, tx), axes):
        sch.bind(axis, thread)
    for operand in (0, 1):
        copy = sch.cache_read(C, operand, scope)
        sch.compute_at(copy, ko, preserve_unit_loops=True)
        _, a, b, v = sch.split(sch.fuse(*sch.get_loops(copy)[-2:]), [None, 8, 8, vector])
        sch.bind(a, "threadIdx.y")
        sch.bind(b, "threadIdx.x")
        if vectorize:
            sch.vectorize(v)
    sch.decompose_reduction(C, ko)
    if stage:
        sch.annotate(ko, "software_pipeline_stage", stage)
        sch.annotate(ko, "software_pipeline_order", order)
    if asynchronous:
        sch.annotate(ko, "software_pipeline_async_stages", list(asynchronous))
    return sch.mod["main"]


def _ab(rng):
    return {"A": uniform(rng, 32, 64), "B": uniform(rng, 64, 32)}


def _product(x):
    return {"C": x["A"] @ x["B"]}


CASES = [
    Case(
        "annotated_two_stages",
        lambda: simple_compute,
        lambda r: {"A": uniform(r, 16, 16)},
        lambda x: {"C": x["A"] * 2 + 1},
        Pipelined(),
        "TVM's simple_compute: the user's plan, legal",
    ),
    Case(
        "annotated_three_stages_reordered",
        lambda: three_stages,
        lambda r: {"A": uniform(r, 16, 16)},
        lambda x: {"D": x["A"] * 2 + 3},
        Pipelined(min_depth=3),
        "three stages, the last statement before the middle one: legal, every gap is an iteration",
    ),
    Case(
        "annotated_async_interleaved",
        lambda: async_two_inputs,
        lambda r: {"A": uniform(r, 16, 16), "B": uniform(r, 16, 16)},
        lambda x: {"C": x["A"] + x["B"]},
        Pipelined(min_depth=4),
        "two asynchronous producers with the consumer between them",
    ),
    Case(
        "annotated_dynamic_trip",
        lambda: dynamic_trip,
        lambda r: {"A": uniform(r, 16, 7), "n": 7},
        lambda x: {"C": x["A"][::-1] + 1},
        Pipelined(min_depth=3),
        "a dynamic trip count under an asynchronous plan",
    ),
    Case(
        "annotated_two_levels",
        lambda: two_levels,
        lambda r: {"A": uniform(r, 16, 16, 16)},
        lambda x: {"C": x["A"] * 2 + 1},
        Pipelined(),
        "nested: four entries for two statements, the inner loop counting as three",
    ),
    Case(
        "annotated_gemm_sync",
        lambda: simt_gemm([0, 0, 1], [0, 1, 2]),
        _ab,
        _product,
        Pipelined(),
        "the classical double buffer, synchronous copies",
        nvcc=True,
    ),
    Case(
        "annotated_gemm_async",
        lambda: simt_gemm([0, 0, 3], [0, 1, 2], [0]),
        _ab,
        _product,
        Pipelined(min_depth=4),
        "four stages of cp.async",
        nvcc=True,
    ),
    Case(
        "annotated_gemm_async_dynamic_shared",
        lambda: simt_gemm([0, 0, 2], [0, 1, 2], [0], scope="shared.dyn"),
        _ab,
        _product,
        Pipelined(min_depth=3),
        "the same in dynamic shared memory",
    ),
    Case(
        "annotated_gemm_interleaved",
        lambda: simt_gemm([0, 0, 2], [0, 2, 1], [0]),
        _ab,
        _product,
        Pipelined(min_depth=3),
        "the consumer between the producers: two commit groups a step",
    ),
]
