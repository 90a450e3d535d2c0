"""An op of a loop: the statement that it is made of, and which part of it it is.

    Op("C_update", "a", k_step=0)       prints as   C_update.k0.a
    Op("A_shared", chunk=1)                         A_shared.1
    Op("A_shared", "wait")                          A_shared.wait
    Op("A_shared", "wait", added=("fence",))        A_shared.wait.fence

The statement is a block of the user's. Mapping makes ops of it: a matmul on fragments becomes loads
and a multiplication for each k-step, a copy through registers a load and a store. Which role runs
an op is a decision about it, and stands in its plan.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Final, Literal, TypeAlias, cast

Part: TypeAlias = Literal["whole", "load", "store", "a", "b", "multiply", "wait", "mma_wait"]
"""What an op does of its statement: all that no other op of it does (``whole``); the load and the
store of a copy through registers, or the load alone, of what is computed from; the fragments of
operand A or B, and their multiplication; a wait for its copies, or for its matrix instructions."""

Added: TypeAlias = Literal["barrier", "commit", "drain", "expect", "fence", "release"]
"""What passes put beside an op when they emit it, with an origin of its own and no place in the
schedule: a barrier before it, a commit behind it, a drain behind the loop, ..."""

_ADDED: Final = ("barrier", "commit", "drain", "expect", "fence", "release")
_SPELLED: Final = re.compile(
    r"(?P<statement>.*?)"
    r"(?:\.(?P<chunk>0|[1-9]\d*))?"
    r"(?:\.k(?P<k_step>0|[1-9]\d*)(?:\.(?P<operand>[ab]))?|\.(?P<part>load|store|wait|mma_wait))?"
    rf"(?P<added>(?:\.(?:{'|'.join(_ADDED)}))*)",
    re.DOTALL | re.ASCII,
)


class Op(str):
    """An op: the text that it prints as, which knows its statement and its part.

    ``statement``: the block that it is made of. ``part``: what it does of it. ``k_step``: of a
    matmul on fragments. ``chunk``: of a copy that is split. ``added``: what was put beside that op,
    innermost first. Two are equal if they print alike. ValueError: the name of the statement
    reads as an op's itself, or a k-step has another part.
    """

    __slots__ = ("added", "chunk", "k_step", "part", "statement")

    statement: str
    part: Part
    k_step: int | None
    chunk: int | None
    added: tuple[Added, ...]

    def __new__(
        cls,
        statement: str,
        part: Part = "whole",
        *,
        k_step: int | None = None,
        chunk: int | None = None,
        added: tuple[Added, ...] = (),
    ) -> Op:
        """The op that is ``part`` of ``statement``."""
        if (k_step is not None) != (part in ("a", "b", "multiply")):
            raise ValueError(f"expected a k-step of a fragment or its product, got {part!r}")
        ends = [] if chunk is None else [str(chunk)]
        ends += [] if k_step is None else [f"k{k_step}"]
        ends += [part] if part not in ("whole", "multiply") else []
        made = str.__new__(cls, ".".join((str(statement), *ends, *added)))
        read = _SPELLED.fullmatch(made) if "." in statement else None
        if read is not None and read["statement"] != statement:
            raise ValueError(f"expected the name of a statement, not of an op, got {statement!r}")
        for name, value in (
            ("statement", str(statement)),
            ("part", part),
            ("k_step", k_step),
            ("chunk", chunk),
            ("added", added),
        ):
            object.__setattr__(made, name, value)
        return made

    @classmethod
    @functools.lru_cache(maxsize=1 << 12)  # plans and statements name the same few again and again
    def parse(cls, text: str) -> Op:
        """The op that prints as ``text``: what a plan, an annotation or an attribute names."""
        found = _SPELLED.fullmatch(text)
        assert found is not None  # a statement may be called anything
        step, chunk = found["k_step"], found["chunk"]
        part = found["part"] or (found["operand"] or "multiply" if step else "whole")
        return cls(
            found["statement"],
            cast(Part, part),
            k_step=None if step is None else int(step),
            chunk=None if chunk is None else int(chunk),
            added=cast("tuple[Added, ...]", tuple(found["added"].split(".")[1:])),
        )

    @property
    def is_whole(self) -> bool:
        """Whether it is all of its statement: nothing was split off it or put beside it."""
        return self.part == "whole" and self.chunk is None and not self.added

    @property
    def of(self) -> Op:
        """What a wait waits for; any other op itself."""
        return Op(self.statement, chunk=self.chunk) if self.part == "wait" else self

    def wait(self) -> Op:
        """The wait for this copy."""
        return Op(self.statement, "wait", chunk=self.chunk)

    def adding(self, added: Added) -> Op:
        """What is put beside this op."""
        return Op(
            self.statement,
            self.part,
            k_step=self.k_step,
            chunk=self.chunk,
            added=(*self.added, added),
        )

    def is_chunk_beside(self, other: Op) -> bool:
        """Whether this and ``other`` are different chunks of one copy."""
        chunks = (self.chunk, other.chunk)
        return self.statement == other.statement and None not in chunks and self != other

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"an Op is immutable: cannot set {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Op.parse, (str(self),)


NO_OP: Final = Op("")
"""What a statement outside of pipelined loops has for an op."""
