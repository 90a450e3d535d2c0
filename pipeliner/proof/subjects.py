"""A kernel as a proof runs it: compiled, with the arguments of one launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tvm.tirx.buffer import is_buffer_var

from ..emulator.base.dtypes import numpy_dtype
from ..emulator.base.sparse import sparse
from ..emulator.launch.arguments import bind_arguments
from ..emulator.launch.evaluate import evaluate
from ..emulator.launch.host import Launch, run_host
from ..emulator.lower import is_device_function
from ..emulator.memory.grid import Block
from ..emulator.translate.compiler import compile_kernel
from ..passes.ir.nodes import variables
from .execution import Launched
from .reading.deciding import deciding
from .reading.entering import entering
from .reading.extents import LoopExtents, is_even_in_cluster, least_count
from .reading.loops import families, loops_inside
from .reading.reaching import Reaching, tags_of
from .reading.scopes import uneven

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
    """Return what a host function launches on arrays of zeros."""
    arguments: list[Any] = []
    for param in host.params:
        if not is_buffer_var(param):
            arguments.append(extents[str(param.name)])
            continue
        values = {var: extents[str(var.name)] for e in param.shape for var in variables(e)}
        shape = tuple(int(evaluate(extent, values)) for extent in param.shape)
        arguments.append(sparse(shape, numpy_dtype(str(param.dtype))))
    return run_host(host, kernels, bind_arguments(host, arguments)[0])


def subject(func: Any, launch: Launch, first: Block = (0, 0, 0)) -> Launched:
    """Return one launch of a kernel as the cluster from CTA ``first`` on runs it."""
    found = deciding(func)
    shape, dims = _dims(launch, "clusterCtaIdx"), _dims(launch, "threadIdx")
    places = [(x, y, z) for z in range(shape[2]) for y in range(shape[1]) for x in range(shape[0])]
    extents = LoopExtents(Reaching(func, found), found.values)
    who = entering(func, launch, extents)
    open_loops = []
    for family in families(func, found, extents, who):
        fewest = least_count(func, launch, family.whole, family.outside)
        if is_even_in_cluster(func, launch, family.whole) and (fewest >= 0 or not family.more):
            alike = variables(family.whole).isdisjoint(tags_of(func))
            open_loops.append(replace(family, fewest=max(0, fewest), is_of_launch=alike))
    return Launched(
        compile_kernel(func),
        launch,
        found,
        tuple(open_loops),
        tuple((at, (first[0] + at[0], first[1] + at[1], first[2] + at[2])) for at in places),
        dims[0] * dims[1] * dims[2],
        dims,
        launch.extent(_DYNAMIC) if _DYNAMIC in launch.dims else 0,
        uneven(func, found),
        loops_inside(func),
        who,
    )


def _dims(launch: Launch, axis: str) -> Block:
    return launch.extent(f"{axis}.x"), launch.extent(f"{axis}.y"), launch.extent(f"{axis}.z")
