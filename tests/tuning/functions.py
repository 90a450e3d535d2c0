"""Functions to tune: a loop that loads tiles, as a PrimFunc and as what makes one of knobs."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from pipeliner.measuring import BuiltCandidate, Measurement, Measurer
from pipeliner.records.functions import Knobs

ROWS, COLUMNS = 8, 64


def reversing(rows: int, name: str = "reverse", columns: int = COLUMNS, factor: float = 2.0) -> Any:
    """Rows of a matrix, each reversed through shared memory, ``rows`` of them to a CTA."""
    ctas = ROWS // rows
    assert ctas * rows == ROWS, f"{rows} does not divide {ROWS}"

    @T.prim_func(s_tir=True)
    def made(X: T.Buffer((ROWS, columns), "float32"), Y: T.Buffer((ROWS, columns), "float32")):
        T.func_attr({"global_symbol": name, "tirx.noalias": True})
        for b in T.thread_binding(ctas, thread="blockIdx.x"):
            for t in T.thread_binding(columns, thread="threadIdx.x"):
                for r in range(rows):
                    with T.sblock("row"):
                        S = T.sblock_alloc_buffer((columns,), "float32", scope="shared")
                        with T.sblock("load"):
                            S[t] = X[b * rows + r, t]
                        with T.sblock("use"):
                            Y[b * rows + r, t] = S[columns - 1 - t] * T.float32(factor)

    return made


def knobbed(rows=[1, 2, 4, 8]):  # noqa: B006
    return reversing(rows)


def by_rows(knobs: dict[str, Any], request: Any) -> float:
    """Two rows are fastest, and one slot."""
    return 10.0 + abs(knobs["rows"] - 2) + (0.0 if request.depth == 1 else 0.5)


class ByKnobs(Measurer):
    """A GPU whose times are what ``us`` says of the knobs and the request."""

    def __init__(self, us) -> None:
        self.us = us
        self.measured: list[Any] = []

    def measure(self, built: BuiltCandidate, incumbent: BuiltCandidate | None) -> Measurement:
        self.measured.append(built)
        beside = () if incumbent is None else self._samples(incumbent)
        return Measurement(self._samples(built), beside)

    def _samples(self, built: BuiltCandidate) -> tuple[float, ...]:
        assert built.candidate is not None
        assert isinstance(built.candidate.tile, Knobs)
        return (self.us(dict(built.candidate.tile.values), built.candidate.request),) * 3
