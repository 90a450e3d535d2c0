"""A kernel as a proof runs it: compiled, with the arguments of one launch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tvm import ir
from tvm.tirx.buffer import is_buffer_var

from ...diagnostics import Reason, Why
from ...emulator.base.dtypes import numpy_dtype
from ...emulator.base.sparse import sparse
from ...emulator.launch.arguments import bind_arguments
from ...emulator.launch.evaluate import evaluate
from ...emulator.launch.host import Launch, run_host
from ...emulator.lower import is_device_function
from ...emulator.memory.grid import Block
from ...emulator.translate.compiler import compile_kernel
from ...emulator.translate.operation import is_trip_count
from ...errors import EmulatorError
from ...passes.ir.nodes import collect, const_int, uses, variables
from ..reading.counts import with_counts
from ..reading.deciding import deciding
from ..reading.ends import with_ends, with_trip_counts
from ..reading.entering import entering
from ..reading.extents import LoopExtents, arguments, is_even_in_cluster, least_count
from ..reading.idle import idle, with_all_reads
from ..reading.loops import Family, Loops, OpenValues, families, loops_inside
from ..reading.naturals import naturals
from ..reading.reaching import GRID, Reaching, tags_of
from ..reading.scopes import uneven
from .launched import Launched, Reading

_REFUSED: Final = ("emulator.host_check", "tensor_map.")
"""Beginnings of the codes of what a host checks, and the driver where it makes a tensor map."""

_DYNAMIC: Final = "tirx.use_dyn_shared_memory"


def host_and_kernels(mod: Any) -> tuple[Any, dict[str, Any]]:
    """Return the host function of a lowered module, and its kernels by name."""
    functions = {str(var.name_hint): func for var, func in mod.functions.items()}
    kernels = {name: func for name, func in functions.items() if is_device_function(func)}
    (host,) = (func for name, func in functions.items() if name not in kernels)
    return host, kernels


def symbolic(host: Any) -> set[str]:
    """The names of the scalar arguments, and of the variables in shapes of others."""
    found: set[str] = set()
    for param in host.params:
        if not is_buffer_var(param):
            found.add(str(param.name))
            continue
        for extent in param.shape:
            found |= {str(var.name) for var in variables(extent)}
    return found


def launches(host: Any, kernels: Mapping[str, Any], extents: Mapping[str, int]) -> list[Launch]:
    """Return what a host function launches on arrays of zeros, but for grids of no CTA."""
    arguments: list[Any] = []
    for param in host.params:
        if not is_buffer_var(param):
            arguments.append(extents[str(param.name)])
            continue
        values = {var: extents[str(var.name)] for e in param.shape for var in variables(e)}
        shape = tuple(int(evaluate(extent, values)) for extent in param.shape)
        arguments.append(sparse(shape, numpy_dtype(str(param.dtype))))
    found = run_host(host, kernels, bind_arguments(host, arguments)[0])
    return [launch for launch in found if not _is_empty(launch)]


def _is_empty(launch: Launch) -> bool:
    """Whether a grid has no CTA, as where an extent is 0."""
    return any(not size for tag, size in launch.dims.items() if tag.startswith(GRID))


def admitted(
    host: Any, kernels: Mapping[str, Any], extents: Mapping[str, int]
) -> list[Launch] | None:
    """Return what is launched; None: the host, or the driver, refuses these extents."""
    try:
        return launches(host, kernels, extents)
    except EmulatorError as err:
        if err.reason.code.startswith(_REFUSED):
            return None
        raise


def subject(
    func: Any,
    launch: Launch,
    first: Block = (0, 0, 0),
    least: Mapping[str, int] | None = None,
    *,
    reading: Reading = Reading.AS_WRITTEN,
    counted: Sequence[Family] = (),
) -> Launched:
    """Return one launch of a kernel as the cluster from CTA ``first`` on runs it.

    ``least``: parameters, by name, that may have any value from these on, beside the one that the
    launch has. ``reading``: of a text that was made for one trip count, of loops ``counted``.
    """
    source, any_end = func, reading != Reading.AS_WRITTEN
    given = {var: value.value for var, value in arguments(func, launch)}
    many = {var: (least or {})[str(var.name)] for var in given if str(var.name) in (least or {})}
    if many:
        func = with_trip_counts(with_all_reads(func, deciding(func), many), many)
    if any_end:
        func = with_ends(func, deciding(func))
    numbers: Mapping[Any, Family] = {}
    if reading == Reading.BY_COUNTS:
        func, numbers = with_counts(func, deciding(func), counted)
        own = (family.extent for family in numbers.values())
        launch = replace(launch, args=(*launch.args, *own))
    found = deciding(func)
    shape, dims = _dims(launch, "clusterCtaIdx"), _dims(launch, "threadIdx")
    places = [(x, y, z) for z in range(shape[2]) for y in range(shape[1]) for x in range(shape[0])]
    extents = LoopExtents(Reaching(func, found), found.values)
    who = entering(func, launch, extents)
    known = {var: value for var, value in given.items() if var not in many} if many else {}
    nothing = idle(func, found) if many else frozenset()
    anything = many | dict.fromkeys(numbers, 0)
    positive = naturals(func, found, anything)
    loops = families(func, found, extents, who, OpenValues(anything, known, nothing, positive))
    unbounded: Why = ""
    if loops.unbounded:
        unbounded = Reason("proof.of_extents", names=tuple(least or ()), decides=loops.unbounded)
    asked = {int(one.args[1].value) for one in collect(func.body, ir.Call, is_trip_count)}
    open_loops = []
    for family in loops.families:
        if many and not family.grows and uses(family.whole, given):
            continue  # it makes as many iterations, whatever the values are
        fewest = least_count(func, launch, family.whole, family.outside, many)
        is_even = is_even_in_cluster(func, launch, family.whole, any_values=family.grows)
        if is_even and (fewest >= 0 or not family.more):
            left = _remainder(family, loops, launch, given)
            count = next((n for n, one in numbers.items() if one.numbers == family.numbers), None)
            modulus = loops.every.get(count, 1)
            is_asked = count is not None or bool(asked & family.numbers)
            open_loops.append(
                replace(
                    family,
                    fewest=max(0, fewest),
                    remainder=left,
                    by_end=any_end and family.extent is not None and is_asked,
                    every=math.lcm(family.every, left[0], modulus),
                    count=count,
                    since=loops.after.get(count, 0),
                    modulus=modulus,
                )
            )
        elif family.grows:
            unbounded = Reason("proof.loops_that_grow", loops=(family.name,))
    whole = Launched(
        compile_kernel(func),
        launch,
        found,
        tuple(open_loops),
        tuple((at, at) for at in places),
        dims[0] * dims[1] * dims[2],
        dims,
        launch.extent(_DYNAMIC) if _DYNAMIC in launch.dims else 0,
        uneven(func, found),
        loops_inside(func),
        who,
        unbounded=unbounded,
        repeats={
            str(var.name): (loops.after[var], loops.every[var])
            for var in many
            if var in loops.after
        },
        parameters=tuple(many),
        given=given,
        reading=reading,
        source=source,
        func=func,
    )
    return beginning_at(whole, first)


def beginning_at(own: Launched, first: Block) -> Launched:
    """Return ``own`` as the cluster from CTA ``first`` on runs it: that alone tells them apart."""
    return replace(
        own,
        blocks=tuple(
            (at, (first[0] + at[0], first[1] + at[1], first[2] + at[2])) for at, _ in own.blocks
        ),
        given={**own.given, **_place(own.func, first)},
    )


def _place(func: Any, first: Block) -> dict[Any, int]:
    """The axes of the grid, where the first CTA of a cluster is."""
    return {
        var: first["xyz".index(tag[-1])]
        for var, tag in tags_of(func).items()
        if tag.startswith(GRID)
    }


def _remainder(
    family: Family, loops: Loops, launch: Launch, given: Mapping[Any, int]
) -> tuple[int, int]:
    """What the trip count of a family leaves, as far as it follows from that of an open value."""
    for var, every in loops.every.items():
        more = const_int(family.whole - var) if family.whole.ty == var.ty else None
        if more is not None and every > 1:
            return every, (given[var] + more) % every
    return 1, 0


def _dims(launch: Launch, axis: str) -> Block:
    return launch.extent(f"{axis}.x"), launch.extent(f"{axis}.y"), launch.extent(f"{axis}.z")
