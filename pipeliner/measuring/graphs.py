"""Calls captured into a CUDA graph: replayed back to back, and their kernels by name.

Between the calls of a graph the host has no part, and nothing overwrites the L2 cache: a figure of
such calls is that of kernels alone, *hot*, where that of a single call after a flush is cold.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

from ..errors import ToolError

CALLS: Final = 20
"""Of a kernel, back to back in the graph that is timed."""

DRIVER: Final = "libcuda.so.1"

_KERNEL: Final = 0
"""CUgraphNodeType of a kernel."""


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS of the driver's API, version 2."""

    _fields_ = [
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("parameters", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    ]


def captured(torch: Any, call: Callable[[], object], calls: int = CALLS) -> Any:
    """A CUDA graph of torch's of so many calls, to ``replay``; raises what a call raises."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for _ in range(calls):
                call()
        finally:
            graph.capture_end()
    graph.instantiate()
    return graph


def kernel_names(
    torch: Any, call: Callable[[], object], driver: Any | None = None
) -> tuple[str, ...]:
    """The kernels that ``call`` launches, by their names in machine code, each once.

    ToolError: the driver does not say.
    """
    graph = captured(torch, call, 1)
    return names_in(ctypes.CDLL(DRIVER) if driver is None else driver, graph.raw_cuda_graph())


def names_in(driver: Any, graph: int) -> tuple[str, ...]:
    """The kernels of a graph of the driver's, each once."""
    count = ctypes.c_size_t()
    _check(driver.cuGraphGetNodes(ctypes.c_void_p(graph), None, ctypes.byref(count)))
    nodes = (ctypes.c_void_p * count.value)()
    _check(driver.cuGraphGetNodes(ctypes.c_void_p(graph), nodes, ctypes.byref(count)))
    found: dict[str, None] = {}
    for handle in nodes:
        node, kind = ctypes.c_void_p(handle), ctypes.c_int()
        _check(driver.cuGraphNodeGetType(node, ctypes.byref(kind)))
        if kind.value == _KERNEL:
            found[_name(driver, node)] = None
    return tuple(found)


def _name(driver: Any, node: ctypes.c_void_p) -> str:
    told, name = KernelNode(), ctypes.c_char_p()
    _check(driver.cuGraphKernelNodeGetParams_v2(node, ctypes.byref(told)))
    if told.function:
        status = driver.cuFuncGetName(ctypes.byref(name), ctypes.c_void_p(told.function))
    else:
        status = driver.cuKernelGetName(ctypes.byref(name), ctypes.c_void_p(told.kernel))
    _check(status)
    return (name.value or b"").decode()


def _check(status: int) -> None:
    if status:
        raise ToolError("measure.driver", status=status)
