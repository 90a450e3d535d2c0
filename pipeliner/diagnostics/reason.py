"""A reason: a code with arguments, whose sentence is made where it is printed."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from numbers import Integral
from typing import Any, TypeAlias

from .formatting import sentence
from .sentences import SENTENCES, TEXT

Value: TypeAlias = "bool | int | float | str | tuple[Value, ...] | Reason | None"


class Reason:
    """A code of the table of sentences with the arguments that its sentence names.

    Immutable and hashable; two are equal if codes and arguments are. LookupError: no such code.
    """

    __slots__ = ("_args", "code")

    code: str
    _args: tuple[tuple[str, Value], ...]

    def __init__(self, code: str, /, **args: Value) -> None:
        if code not in SENTENCES:
            raise LookupError(f"no sentence has the code {code!r}")
        object.__setattr__(self, "code", code)
        object.__setattr__(self, "_args", tuple((name, _exact(args[name])) for name in args))

    @staticmethod
    def text(words: str) -> Reason:
        """A reason of which only words are known: a person's, or those of an older plan."""
        return Reason(TEXT, text=words)

    @staticmethod
    def of(why: Why) -> Reason:
        """``why`` as a reason."""
        return why if isinstance(why, Reason) else Reason.text(why)

    @property
    def why(self) -> Reason:
        """What this one gives as its argument ``why``; itself, where it has none."""
        given = dict(self._args).get("why")
        return given if isinstance(given, Reason) else self

    @property
    def args(self) -> Mapping[str, Value]:
        """The arguments by name."""
        return dict(self._args)

    def __getitem__(self, name: str) -> Value:
        return dict(self._args)[name]

    def __str__(self) -> str:
        return _sentence(self)

    def __repr__(self) -> str:
        args = "".join(f", {name}={value!r}" for name, value in self._args)
        return f"Reason({self.code!r}{args})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Reason):
            return NotImplemented
        return self.code == other.code and self._args == other._args

    def __hash__(self) -> int:
        return hash((self.code, self._args))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Reason is immutable: cannot set {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self.code, self._args)

    def walk(self) -> Iterator[Reason]:
        """This reason and those among its arguments, outermost first."""
        yield self
        for _, value in self._args:
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, Reason):
                    yield from each.walk()

    def has(self, code: str) -> bool:
        """Whether this reason, or one among its arguments, has the code ``code``."""
        return any(reason.code == code for reason in self.walk())

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it: code, arguments, and the sentence for whoever reads it."""
        args = {name: _plain(value) for name, value in self._args}
        return {"code": self.code, "args": args, "text": str(self)}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Reason:
        """The reason that ``as_dict`` wrote; its text is made anew. LookupError: no such code."""
        return Reason(data["code"], **{name: _value(one) for name, one in data["args"].items()})


Why: TypeAlias = Reason | str
"""What a plan says for a decision of its: a reason, or a person's words; empty: nothing."""


def reason_as_json(why: Why) -> Any:
    """``why`` as JSON has it: a reason with its sentence, or words."""
    return why.as_dict() if isinstance(why, Reason) else why


def joined(reasons: Iterable[Why]) -> str:
    """The sentences of ``reasons`` as one text."""
    return "; ".join(map(str, reasons))


@functools.lru_cache(maxsize=4096)
def _sentence(reason: Reason) -> str:
    return sentence(SENTENCES[reason.code], reason.args)


def _made(code: str, args: tuple[tuple[str, Value], ...]) -> Reason:
    return Reason(code, **dict(args))


def _exact(value: Any) -> Any:
    """Return ``value`` as Python's own type: TVM's strings and numpy's numbers are kin of these."""
    if isinstance(value, tuple):
        return tuple(map(_exact, value))
    if value is None or isinstance(value, Reason) or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    return int(value) if isinstance(value, Integral) else float(value)


def _plain(value: Value) -> Any:
    if isinstance(value, Reason):
        return value.as_dict()
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _value(data: Any) -> Value:
    if isinstance(data, dict):
        return Reason.from_dict(data)
    return tuple(_value(each) for each in data) if isinstance(data, list) else data
