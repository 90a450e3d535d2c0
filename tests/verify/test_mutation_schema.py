"""Mutants in one program with their kernel do what they do alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import prim
from tvm.script import tirx as T

from pipeliner.emulator import emulate
from pipeliner.emulator.lower import is_device_function
from pipeliner.mutation import mutate
from pipeliner.mutation.mutants import mutants, mutated
from pipeliner.mutation.schema import Schema
from pipeliner.passes.ir.nodes import walk

from ..emulator.raw import lower
from .mutation_kernels import FORMS, gemm


def outcome(mod: Any, arrays: Any, **options: Any) -> tuple[Any, ...]:
    """Return the hazards of a run, each by its kind and statements, and the outputs."""
    found = emulate(mod, arrays, timing="late", order="reversed", **options)
    hazards = {
        (h.kind, h.site.number, None if h.other is None else h.other.number) for h in found.hazards
    }
    return hazards, {name: array.tobytes() for name, array in found.outputs.items()}


@pytest.mark.parametrize("how", FORMS[:3], ids=lambda how: "-".join(how.values()))
@pytest.mark.part(3)
def test_each_mutant_does_what_it_does_alone(how: dict[str, str]) -> None:
    kernel = gemm(4, 3, **how)
    found = mutants(kernel.lowered)
    schema = Schema.of(kernel.lowered, found)
    assert set(schema.numbers) == set(found)
    assert sorted(schema.numbers.values()) == list(range(1, len(found) + 1))
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal([int(extent) for extent in param.shape]).astype(str(param.dtype))
        for param in kernel.function.params
    ]
    programs = schema.programs
    whole = outcome(kernel.lowered, arrays)
    assert outcome(kernel.lowered, arrays, programs=programs) == whole
    assert not whole[0]
    alone = [outcome(mutated(kernel.lowered, mutant), arrays) for mutant in found]
    for mutant, wanted in zip(found, alone, strict=True):
        number = schema.numbers[mutant]
        assert outcome(kernel.lowered, arrays, programs=programs, variant=number) == wanted, mutant
    assert whole not in alone


@T.prim_func(s_tir=True)
def named(A: T.Buffer((4, 32), "float32"), C: T.Buffer((4, 32), "float32")):
    for tx in T.thread_binding(32, thread="threadIdx.x"):
        S = T.alloc_buffer((64,), "float32", scope="shared")
        for k in T.serial(4):
            slot: T.let[T.int32] = (k * 3 + 1) % 2
            S[slot * 32 + tx] = A[k, tx]
            T.tvm_storage_sync("shared")
            C[k, tx] = S[slot * 32 + 31 - tx]


@T.prim_func(s_tir=True)
def unrolled(A: T.Buffer((4, 64), "float32"), C: T.Buffer((4, 64), "float32")):
    for tx in T.thread_binding(64, thread="threadIdx.x"):
        S = T.alloc_buffer((128,), "float32", scope="shared")
        for k in T.unroll(4):
            S[k % 2 * 64 + tx] = A[k, tx]
            T.tvm_storage_sync("shared")
            C[k, tx] = S[k % 2 * 64 + 63 - tx]


def test_a_node_that_stands_in_several_places_is_changed_in_one() -> None:
    """Its mutants are told apart by what races."""
    mod = lower(unrolled)
    found = [mutant for mutant in mutants(mod) if mutant.kind == "barrier"]
    schema = Schema.of(mod, found)
    arrays = [np.ones((4, 64), np.float32), np.zeros((4, 64), np.float32)]
    together = [
        outcome(mod, arrays, programs=schema.programs, variant=schema.numbers[mutant])
        for mutant in found
    ]
    assert together == [outcome(mutated(mod, mutant), arrays) for mutant in found]
    assert len({frozenset(hazards) for hazards, _ in together}) == len(found) == 4


def with_uses(mod: Any) -> Any:
    """Return ``named`` with the slot by its name, which lowering has replaced by its value."""
    functions = dict(mod.functions.items())
    for var, func in functions.items():
        if not is_device_function(func):
            continue
        binds: list[Any] = []
        walk(func.body, tirx.Bind, binds.append)

        def store(node: Any, slot: Any = binds[0].var) -> Any:
            return tvm_ffi.structural_map(node, [(prim.BitwiseAnd, lambda _: slot)])

        body = tvm_ffi.structural_map(func.body, [(tirx.BufferStore, store)])
        functions[var] = tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)
    return tvm.IRModule(functions, attrs=mod.attrs)


def test_a_value_that_others_use_is_changed_in_a_program_of_its_own() -> None:
    mod = with_uses(lower(named))
    found = mutants(mod)
    numbers = Schema.of(mod, found).numbers
    assert [mutant.kind for mutant in found] == ["barrier", "slot"]
    assert [mutant.kind for mutant in numbers] == ["barrier"]
    fates = mutate(mod).fates
    assert [fate.killed for fate in fates] == [
        True,
        False,
    ]  # all uses go to the other slot together
