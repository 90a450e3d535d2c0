"""What to try next: the model's prediction, corrected by what was measured so far.

The logarithm of measured over predicted time is taken for a Gaussian process over the points'
features (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, algorithm 2.1):
points that lie close are mispredicted alike. The next point is the one whose time may be the least,
expectation less some standard deviations (Srinivas et al., arXiv 0912.3995). Of several that are
tried at once, each is chosen as if those before it had taken what is expected of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ..records.candidate import Candidate
from .space import Point

SPREAD: Final = 0.15
"""Standard deviation of the model's error that neighbours share."""

REACH: Final = 1.5
"""Distance up to which points share most of their error: 1 is a power of two in one size.

128 tiles of 11 convolutions, measured on an H100, are likelier still with 0.1 and 0.7; but where
the model is off by 15 %, made up, such a search stays near its first guess: after 16 trials 94 to
96 % of the best, with these 97 to 99 %, and the model's order alone 89 to 95 %."""

BIAS: Final = 0.5
"""Standard deviation of the error that all points of a workload have in common."""

NOISE: Final = 0.02
"""Standard deviation of a measurement, with what is not in the features."""

EXPLORE: Final = 1.5
"""Standard deviations by which a point may be faster than expected to be tried."""

FAILURE: Final = 2.0
"""Time of a candidate that failed, as a multiple of the slowest that was measured."""

GAIN: Final = 0.01
"""A candidate that is not faster by more than this share is none to go on for: the noise."""

ENOUGH: Final = 0.05
"""Probability that any candidate left is better by ``GAIN``, below which a search ends."""

DRAWS: Final = 512
"""Of the times of all candidates left, together: probabilities of 5 % are known to 1 %."""

CLOSEST: Final = 256
"""Candidates left that are likeliest to be better, whose times are drawn."""

_ARRAY = np.ndarray[Any, np.dtype[np.float64]]


class Search:
    """The points of a space, what is known of some, and the order in which to try the others."""

    def __init__(self, points: Sequence[Point]) -> None:
        self._points = list(points)
        self._features = np.array([point.features for point in points], dtype=float)
        self._predicted = np.array(
            [math.log(point.predicted_us) if point.predicted_us > 0 else 0.0 for point in points]
        )
        self._at = {point.candidate: at for at, point in enumerate(points)}
        self._times: dict[int, float | None] = {}

    def __len__(self) -> int:
        """Points that are not tried yet."""
        return len(self._points) - len(self._times)

    def tell(self, candidate: Candidate, us: float | None) -> None:
        """What became of a candidate: its time, or None where it failed; strangers are ignored."""
        if candidate in self._at:
            self._times[self._at[candidate]] = us

    def next(self, count: int, under_way: Sequence[Candidate] = ()) -> list[Point]:
        """The points to try next, ``count`` or what is left; those ``under_way`` are not again."""
        tried = list(self._times)
        errors = self._errors()
        pending = [self._at[candidate] for candidate in under_way if candidate in self._at]
        for at in pending:
            errors.append(float(self._expected(tried, errors)[0][at]))
            tried.append(at)
        chosen: list[int] = []
        for _ in range(min(count, len(self._points) - len(tried))):
            mean, deviation = self._expected(tried, errors)
            least = self._predicted + mean - EXPLORE * deviation
            least[tried] = np.inf
            best = int(np.argmin(least))
            chosen.append(best)
            tried.append(best)
            errors.append(float(mean[best]))
        return [self._points[at] for at in chosen]

    def chance(self) -> float:
        """The probability that a point left takes less than the best so far by more than ``GAIN``.

        By the errors of the model on the points that were measured. Points that lie close are off
        alike, so that their times are drawn together. 1 where nothing is known, or of a point left
        nothing is predicted.
        """
        times = [us for us in self._times.values() if us is not None]
        left = [at for at in range(len(self._points)) if at not in self._times]
        if not left:
            return 0.0
        if not times or any(self._points[at].predicted_us <= 0 for at in left):
            return 1.0
        tried, goal = list(self._times), math.log(min(times) * (1 - GAIN))
        mean, deviation = self._expected(tried, self._errors())
        away = (self._predicted + mean - goal) / np.maximum(deviation, NOISE)
        left = sorted(left, key=lambda at: float(away[at]))[:CLOSEST]
        known, unknown = self._features[tried], self._features[left]
        lower = np.linalg.cholesky(_shared(known, known) + NOISE**2 * np.eye(len(tried)))
        across = np.linalg.solve(lower, _shared(known, unknown))
        rest = _shared(unknown, unknown) - across.T @ across + NOISE**2 * np.eye(len(left))
        drawn = np.random.default_rng(0).normal(size=(len(left), DRAWS))
        logs = (self._predicted + mean)[left][:, None] + np.linalg.cholesky(rest) @ drawn
        return float(np.mean(logs.min(axis=0) < goal))

    def _errors(self) -> list[float]:
        """The logarithm of measured over predicted time of each point that was tried."""
        times = [us for us in self._times.values() if us is not None]
        if not times:  # a failure says nothing before there is a time to hold it against
            return [0.0] * len(self._times)
        worst = FAILURE * max(times)
        return [
            math.log(worst if us is None else us) - self._predicted[at]
            for at, us in self._times.items()
        ]

    def _expected(self, tried: list[int], errors: list[float]) -> tuple[_ARRAY, _ARRAY]:
        """Mean and standard deviation of every point's error, given those of the tried ones."""
        variance = BIAS**2 + SPREAD**2
        if not tried:
            return np.zeros(len(self._points)), np.full(len(self._points), math.sqrt(variance))
        known = self._features[tried]
        lower = np.linalg.cholesky(_shared(known, known) + NOISE**2 * np.eye(len(tried)))
        across = np.linalg.solve(lower, _shared(known, self._features))
        mean = across.T @ np.linalg.solve(lower, np.array(errors))
        rest = np.maximum(variance - np.sum(across**2, axis=0), 0.0)
        return mean, np.sqrt(rest)


def _shared(left: _ARRAY, right: _ARRAY) -> _ARRAY:
    """The covariance of the errors of two lists of points."""
    squares = np.sum((left[:, None, :] - right[None, :, :]) ** 2, axis=-1)
    covariance: _ARRAY = BIAS**2 + SPREAD**2 * np.exp(-squares / (2 * REACH**2))
    return covariance
