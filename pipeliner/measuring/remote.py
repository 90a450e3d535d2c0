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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..diagnostics import Reason
from ..errors import TargetError, ToolError, WorkloadError
from ..schedules.workloads import Spec, numpy_dtype
from ..verification.accuracy import worst_error
from ..workers import Worker
from .compiling import BuiltCandidate
from .measurer import Measurement, Measurer
from .process import BESIDE
from .rounds import Rounds, race

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


class RemoteMeasurer(Measurer):
    """Measures on a server of ``key``; a session, and a process here, hold what may hang."""

    def __init__(
        self, host: str, port: int, key: str, device: str = "cuda", rounds: Rounds = BESIDE
    ) -> None:
        self._worker = Worker(functools.partial(_Remote, host, port, key, device, rounds))

    def start(self) -> None:
        self._worker.start()

    def measure(self, built: BuiltCandidate, incumbent: BuiltCandidate | None) -> Measurement:
        try:
            found: Measurement = self._worker.call(built, incumbent, seconds=SECONDS)
        except ToolError as err:
            self._worker.close()  # and with it the session, whatever state it is in
            return Measurement(failure=Reason("measure.failed", why=err.reason))
        return found

    def end(self) -> None:
        self._worker.end()

    def close(self) -> None:
        self._worker.close()


@dataclass(slots=True)
class _Loaded:
    """A kernel on the server, and its arguments there."""

    timer: Any
    arguments: list[Any]


@dataclass(slots=True)
class _Session:
    """A session with a server since ``began``, and what is there for one workload.

    ``inputs``: of ``spec``. ``incumbent``: the kernel that others are measured beside. ``modules``:
    by file; a file that is loaded must not be written again.
    """

    session: Any
    device: Any
    began: float
    spec: Spec
    inputs: list[Any]
    incumbent: tuple[BuiltCandidate, _Loaded] | None = None
    modules: dict[str, Any] = field(default_factory=dict)


class _Remote:
    """In the worker: a session with a server, and the exact result of a workload.

    A session serves many trials: each begins with a process and a driver's context on the server. A
    trial that fails ends this process, and the session with it.
    """

    def __init__(self, host: str, port: int, key: str, device: str, rounds: Rounds) -> None:
        self._address, self._key, self._device = (host, port), key, device
        self._rounds = rounds
        self._spec: Spec | None = None
        self._inputs: tuple[Any, ...] = ()
        self._exact: Any = None
        self._magnitude: Any = None
        self._session: _Session | None = None

    def __call__(self, built: BuiltCandidate, incumbent: BuiltCandidate | None) -> Measurement:
        self._switch_to(built.spec)
        session = self._connected(built.spec)
        name = str(getattr(session.device, "device_name", "") or self._device)
        conditions = {"gpu": name, "server": self._key}
        ours = self._load(session, built)
        worst = self._error(ours)
        if not worst <= built.slack:
            failure = Reason("measure.wrong", error=worst)
            return Measurement(failure=failure, conditions=conditions)
        entries = [ours]
        if incumbent is not None:
            entries.append(self._known(session, incumbent))
        times = self._race(entries)
        return Measurement(
            tuple(times[0]), tuple(times[1]) if incumbent is not None else (), "", conditions
        )

    def _switch_to(self, spec: Spec) -> None:
        if spec != self._spec:
            self._inputs = spec.inputs()
            self._exact = spec.reference(*self._inputs)
            self._magnitude = spec.magnitude(*self._inputs)
            self._spec = spec

    def _connected(self, spec: Spec) -> _Session:
        """The session at hand, or another where it is of another workload or about to end."""
        import tvm
        from tvm import rpc

        current = self._session
        if current and current.spec == spec and time.monotonic() - current.began < RENEW_SECONDS:
            return current
        # A server has one session: the old one makes room for the new.
        self._session = current = None
        with contextlib.closing(rpc.connect_tracker(*self._address)) as tracker:
            session = tracker.request(self._key, session_timeout=SESSION_SECONDS)
        device = session.device(self._device, 0)
        inputs = [tvm.runtime.tensor(array, device) for array in self._inputs]
        self._session = _Session(session, device, time.monotonic(), spec, inputs)
        return self._session

    def _known(self, session: _Session, incumbent: BuiltCandidate) -> _Loaded:
        if session.incumbent is None or session.incumbent[0] != incumbent:
            session.incumbent = (incumbent, self._load(session, incumbent))
        return session.incumbent[1]

    def _load(self, session: _Session, built: BuiltCandidate) -> _Loaded:
        import tvm

        name = f"{Path(built.path).parent.name}_{Path(built.path).name}"
        if name not in session.modules:
            session.session.upload(built.path, target=name)
            session.modules[name] = session.session.load_module(name)
        module = session.modules[name]
        out = np.full(built.spec.shapes()[-1], np.nan if _is_float(built.spec.out) else -85)
        written = tvm.runtime.tensor(out.astype(numpy_dtype(built.spec.out)), session.device)
        arguments = [*session.inputs, written]
        module[built.name](*arguments)
        # It runs the kernel once untimed: only a cache that is overwritten by itself is cold then.
        timer = module.time_evaluator(
            built.name, session.device, number=1, repeat=1, cache_flush_bytes=FLUSH_BYTES
        )
        return _Loaded(timer, arguments)

    def _error(self, loaded: _Loaded) -> float:
        assert self._spec is not None
        got = loaded.arguments[-1].numpy()
        return float(worst_error(self._spec, got, self._exact, self._magnitude))

    def _race(self, entries: list[_Loaded]) -> list[list[float]]:
        """Times of each, interleaved, in microseconds, until all rounds are done or it is clear.

        They are of TVM's timer on the server: events around the call, what the host does for a
        launch included, some microseconds more than ``GpuMeasurer`` finds.
        """
        times: list[list[float]] = [[] for _ in entries]

        def run_round(order: Sequence[int]) -> list[float]:
            took = (entries[at].timer(*entries[at].arguments).results[0] for at in order)
            return [float(seconds) * 1e6 for seconds in took]

        race(run_round, times, self._rounds)
        return times


def _is_float(dtype: str) -> bool:
    return "float" in dtype
