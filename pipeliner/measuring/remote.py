"""Measure through TVM's RPC tracker: kernels compiled here run on GPUs anywhere.

    python -m tvm.exec.rpc_tracker --port 9190
    export TVM_FFI_DISABLE_TORCH_C_DLPACK=1
    python -m tvm.exec.rpc_server --tracker HOST:9190 --key h100      # for each GPU
    pipeliner tune gemm --target h100 --tracker HOST:9190 --key h100

A server needs TVM and a driver, no pipeliner and no nvcc where the library holds machine code. Each
server is a measurer of its own: the tracker hands out whichever is free.

A server forks for each session. Where PyTorch is installed, loading TVM has it ask the driver for
the GPUs, and no fork may use one afterwards ("initialization error"): hence the variable.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from ..errors import TargetError, ToolError, WorkloadError
from ..schedules.workloads import Spec, each_of, numpy_dtype, results_of
from ..verification.accuracy import worst_error
from .compiling import BuiltCandidate
from .contenders import Runner
from .gpu_bench import KernelBench, ReadyKernel
from .measurer import Measurer
from .process import BESIDE, Answers, ProcessMeasurer
from .rounds import Rounds

SECONDS: Final = 120.0
"""For one trial, what goes over the wire included."""

CONNECT_SECONDS: Final = 5.0

LAST_PORT: Final = 9199
"""From which on TVM's tracker takes a port only if it is told of a later end."""

NO_TORCH: Final = "TVM_FFI_DISABLE_TORCH_C_DLPACK=1"
"""In the environment of a server that forks."""

SESSION_SECONDS: Final = 60
"""After which a server ends a session that hangs."""

RENEW_SECONDS: Final = 30.0
"""Of a session, after which the next trial has another: what is left is enough for a trial."""

FLUSH_BYTES: Final = 128 * 1024 * 1024
"""Read and written each before a run: together more than the L2 cache of any GPU planned for."""


def tracker_address(text: str) -> tuple[str, int]:
    """``HOST:PORT`` in two; WorkloadError: it is none."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise WorkloadError("tracker.address", value=text)
    return host, int(port)


def remote_measurers(tracker: str, key: str, device: str = "cuda") -> list[Measurer]:
    """A measurer for each server of ``key`` that the tracker knows; TargetError: there is none.

    ToolError: the tracker does not answer, or TVM's RPC misses a package.
    """
    host, port = tracker_address(tracker)
    try:
        from tvm import rpc

        with socket.create_connection((host, port), CONNECT_SECONDS):
            pass  # TVM's own connection would be tried again for a minute
        with contextlib.closing(rpc.connect_tracker(host, port)) as connected:
            servers = connected.summary()["server_info"]
    except ConnectionRefusedError as err:
        more = f" --port-end {port + 1}" * (port >= LAST_PORT)
        raise ToolError("tracker.silent", tracker=tracker, host=host, port=port, more=more) from err
    except (ImportError, OSError, RuntimeError) as err:
        raise ToolError("tracker.failed", tracker=tracker, why=" ".join(str(err).split())) from err
    count = sum(one.get("key") == f"server:{key}" for one in servers)
    if not count:
        raise TargetError("tracker.no_server", tracker=tracker, key=key, without=NO_TORCH)
    return [RemoteMeasurer(host, port, key, device) for _ in range(count)]


class RemoteMeasurer(ProcessMeasurer):
    """Measures on a server of ``key``; a session, and a process here, hold what may hang."""

    def __init__(
        self, host: str, port: int, key: str, device: str = "cuda", rounds: Rounds = BESIDE
    ) -> None:
        bench = functools.partial(RemoteBench, (host, port), key, device)
        super().__init__(functools.partial(Answers, bench, dict), {}, rounds)

    def limit(self, first: bool) -> float:
        return SECONDS


class RemoteBench(KernelBench):
    """A session with a server: it begins with a process and a driver's context there.

    It serves many trials. One that fails ends this process, and the session with it.
    """

    def __init__(self, address: tuple[str, int], key: str, device: str, spec: Spec) -> None:
        from tvm import rpc

        right = _right(spec)  # no time of the session
        with contextlib.closing(rpc.connect_tracker(*address)) as tracker:
            self._session = tracker.request(key, session_timeout=SESSION_SECONDS)
        self.ends = time.monotonic() + RENEW_SECONDS
        self._device = self._session.device(device, 0)
        name = str(getattr(self._device, "device_name", "") or device)
        super().__init__(spec, _There(self._device, *right), {"gpu": name, "server": key})
        self._modules: dict[str, Any] = {}

    def load(self, built: BuiltCandidate) -> tuple[Runner, str]:
        """Uploaded, by its file: one that is loaded there must not be written again."""
        name = f"{Path(built.path).parent.name}_{Path(built.path).name}"
        if name not in self._modules:
            self._session.upload(built.path, target=name)
            self._modules[name] = self._session.load_module(name)
        return _RemoteKernel(self._modules[name], built.name, self._device), ""

    def time(self, entries: Sequence[ReadyKernel], *, primed: bool = False) -> list[float]:
        """By TVM's timer on the server: events around the call, what the host does included.

        That is some microseconds more than ``GpuMeasurer`` finds. It always runs a kernel before.
        """
        took = (cast(_RemoteKernel, one.run).timer(*one.arguments).results[0] for one in entries)
        return [float(seconds) * 1e6 for seconds in took]


@dataclass(frozen=True)
class _RemoteKernel:
    """A kernel on the server, as a call."""

    module: Any
    name: str
    device: Any

    def __call__(self, *arguments: Any) -> None:
        self.module[self.name](*arguments)

    @functools.cached_property
    def timer(self) -> Any:
        """It runs the kernel once untimed: only a cache overwritten by itself is cold then."""
        return self.module.time_evaluator(
            self.name, self.device, number=1, repeat=1, cache_flush_bytes=FLUSH_BYTES
        )


class _There:
    """The inputs of a workload on a server, and what must come of them."""

    def __init__(self, device: Any, spec: Spec, inputs: Sequence[Any], *right: Any) -> None:
        import tvm

        self._spec, self._right = spec, right
        self._put = functools.partial(tvm.runtime.tensor, device=device)
        self._inputs = tuple(map(self._put, inputs))
        self._unwritten = [
            np.full(shape, np.nan if "float" in dtype else -85).astype(numpy_dtype(dtype))
            for shape, dtype in results_of(spec)
        ]

    def arguments(self, built: BuiltCandidate) -> tuple[Any, ...]:
        return (*self._inputs, *map(self._put, self._unwritten))

    def reset(self, arguments: tuple[Any, ...]) -> None:
        for out, unwritten in zip(self._outs(arguments), self._unwritten):
            out.copyfrom(unwritten)

    def error(self, arguments: tuple[Any, ...], made: Any) -> float:
        errors = [
            worst_error(self._spec, out.numpy(), exact, magnitude, out=dtype)
            for out, exact, magnitude, (_, dtype) in zip(
                self._outs(arguments), *map(each_of, self._right), results_of(self._spec)
            )
        ]
        return float(np.max(errors))

    def _outs(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return arguments[-len(self._unwritten) :]


@functools.lru_cache(maxsize=1)
def _right(spec: Spec) -> tuple[Any, ...]:
    """A workload, its inputs, the exact result, and what rounding errors are relative to."""
    inputs = spec.inputs()
    return spec, inputs, spec.reference(*inputs), spec.magnitude(*inputs)
