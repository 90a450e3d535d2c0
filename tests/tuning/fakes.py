"""A GPU made up in the test: its times are the model's, off by what no search can know."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence

import numpy as np

from pipeliner.diagnostics import Reason
from pipeliner.machine import machine_for
from pipeliner.measuring import BuiltCandidate, Measurement, Measurer
from pipeliner.records.candidate import Candidate
from pipeliner.schedules.workloads import Spec
from pipeliner.tuning.space import Point, point_of

NOT_COMPILED = Reason("measure.not_compiled", why="ptxas said no")

ERROR = 0.15
NOISE = 0.01


class MadeUpGpu:
    """True times: predicted, times a smooth random function of the features, seeded."""

    def __init__(self, spec: Spec, target: str = "h100", seed: int = 0) -> None:
        self.spec, self.machine, self.seed = spec, machine_for(target), seed

    def us(self, candidate: Candidate) -> float:
        (us,) = self.times([point_of(self.spec, self.machine, candidate)])
        return us

    def times(self, points: Sequence[Point]) -> list[float]:
        features = np.array([point.features for point in points])
        rng = np.random.default_rng(self.seed)
        waves = rng.normal(size=(features.shape[1], 16))
        phases = rng.uniform(0, 2 * math.pi, 16)
        errors = np.cos(features @ waves + phases).sum(axis=1) * math.sqrt(2 / 16)
        predicted = np.array([point.predicted_us or 10.0 for point in points])
        return list(predicted * np.exp(ERROR * errors))


class Compiler:
    """Compiles nothing; ``broken`` candidates fail."""

    def __init__(self, broken=lambda candidate: False, jobs: int = 4) -> None:
        self.broken, self.jobs = broken, jobs
        self.compiled: list[Candidate] = []
        self.log: list[str] = []

    def start(self) -> None:
        self.log.append("start")

    def compile(self, spec: Spec, candidate: Candidate) -> BuiltCandidate:
        self.compiled.append(candidate)
        if self.broken(candidate):
            return BuiltCandidate(spec, candidate, failure=NOT_COMPILED)
        return BuiltCandidate(
            spec, candidate, candidate.to_json(), "k", plan="{}", predicted_us=1.0
        )

    def end(self) -> None:
        self.log.append("end")

    def close(self) -> None:
        self.log.append("close")


class Fake(Measurer):
    """Times of a made-up GPU with noise, and a drift that makes everything slower and slower."""

    def __init__(self, gpu: MadeUpGpu, seconds: float = 0.0, drift: float = 0.0) -> None:
        self.gpu, self.seconds, self.drift = gpu, seconds, drift
        self.measured: list[tuple[Candidate, Candidate | None]] = []
        self._rng = random.Random(gpu.seed)
        self._heat = 1.0

    def measure(self, built: BuiltCandidate, incumbent: BuiltCandidate | None) -> Measurement:
        time.sleep(self.seconds)
        self.measured.append((built.candidate, incumbent and incumbent.candidate))
        self._heat += self.drift
        beside = () if incumbent is None else self._samples(incumbent.candidate)
        return Measurement(self._samples(built.candidate), beside, conditions={"gpu": "made up"})

    def _samples(self, candidate: Candidate) -> tuple[float, ...]:
        us = self.gpu.us(candidate) * self._heat
        return tuple(us * self._rng.gauss(1.0, NOISE) for _ in range(9))


class Loop(Measurer):
    """Fails every time."""

    def measure(self, built: BuiltCandidate, incumbent: BuiltCandidate | None) -> Measurement:
        return Measurement(
            failure=Reason("measure.failed", why=Reason("worker.died", how="SIGSEGV"))
        )
