"""A reason: a code with arguments, and its sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from numbers import Integral
from typing import Any, Final, SupportsIndex, TypeAlias

from .formatting import sentence
from .sentences import SENTENCES, TEXT

Value: TypeAlias = "bool | int | float | str | tuple[Value, ...] | Reason | None"


class Reason(str):
    """A sentence that knows its code in the table of sentences, and its arguments by name.

    It is text for whoever prints it, joins it or looks for words in it; whoever decides by it asks
    for ``code`` and ``reason["us"]``. Two are equal if codes and arguments are. LookupError:
    no such code.
    """

    __slots__ = ("_args", "code")

    code: str
    _args: dict[str, Value]

    def __new__(cls, code: str, /, **args: Value) -> Reason:
        """The reason with the code ``code``; its template says which arguments it has."""
        if code not in SENTENCES:
            raise LookupError(f"no sentence has the code {code!r}")
        for value in args.values():
            if type(value) not in _EXACT:
                args = {name: _exact(value) for name, value in args.items()}
                break
        made = str.__new__(cls, sentence(SENTENCES[code], args))
        object.__setattr__(made, "code", code)
        object.__setattr__(made, "_args", args)
        return made

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
        given = self._args.get("why")
        return given if isinstance(given, Reason) else self

    @property
    def args(self) -> Mapping[str, Value]:
        """The arguments by name."""
        return dict(self._args)

    def __getitem__(self, key: SupportsIndex | slice | str) -> Any:
        """The argument of that name, or a part of the sentence."""
        return self._args[key] if isinstance(key, str) else super().__getitem__(key)

    def __repr__(self) -> str:
        args = "".join(f", {name}={value!r}" for name, value in self._args.items())
        return f"Reason({self.code!r}{args})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Reason):
            return self.code == other.code and self._args == other._args
        return super().__eq__(other)

    def __hash__(self) -> int:
        return super().__hash__()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Reason is immutable: cannot set {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self.code, self._args, str(self))

    def walk(self) -> Iterator[Reason]:
        """This reason and those among its arguments, outermost first."""
        yield self
        for value in self._args.values():
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, Reason):
                    yield from each.walk()

    def has(self, code: str) -> bool:
        """Whether this reason, or one among its arguments, has the code ``code``."""
        return any(reason.code == code for reason in self.walk())

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it: code, arguments, and the sentence for whoever reads it."""
        args = {name: _plain(value) for name, value in self._args.items()}
        return {"code": self.code, "args": args, "text": str(self)}

    @staticmethod
    def from_dict(data: Mapping[str, Any], *, any_version: bool = False) -> Reason:
        """The reason that ``as_dict`` wrote; its text is made anew.

        LookupError: no such code, or arguments of which its sentence cannot be made; with
        ``any_version`` it keeps the text that it had where it was written, if it had one.
        """
        code, args = data["code"], data["args"]
        if not isinstance(args, Mapping):
            raise LookupError(f"expected the arguments of {code!r} by name, not {args!r}")
        values: dict[str, Value] = {}
        try:
            values = {name: _value(one, any_version) for name, one in args.items()}
            return Reason(code, **values)
        except (LookupError, ValueError, RecursionError) as err:
            text = data.get("text")
            if any_version and isinstance(code, str) and isinstance(text, str) and text:
                return _with_text(code, values, text)
            raise LookupError(f"no sentence {code!r} is made of these arguments ({err})") from err


Why: TypeAlias = Reason | str
"""What a plan says for a decision of its: a reason, or a person's words; empty: nothing."""


def reason_as_json(why: Why) -> Any:
    """``why`` as JSON has it: a reason with its sentence, or words."""
    return why.as_dict() if isinstance(why, Reason) else why


def all_of(reasons: Iterable[Why | None]) -> Why:
    """``reasons`` as one, without empty ones; the reason itself where it is the only one."""
    given = tuple(reason for reason in reasons if reason)
    return Reason("reason.all", reasons=given) if len(given) > 1 else given[0] if given else ""


def each_of(why: Why) -> tuple[Why, ...]:
    """The reasons that ``all_of`` made ``why`` from."""
    if not isinstance(why, Reason) or why.code != "reason.all":
        return (why,) if why else ()
    reasons = why["reasons"]
    assert isinstance(reasons, tuple)
    return tuple(one for one in reasons if isinstance(one, Reason | str))


def replaced(why: Why, code: str, *by: Reason) -> Why:
    """``why``, with ``by`` in place of those of its reasons that have the code ``code``."""
    return all_of(new for one in each_of(why) for new in (by if is_code(one, code) else (one,)))


def is_code(why: Why, code: str) -> bool:
    """Whether ``why`` is a reason with the code ``code``, whatever its arguments have."""
    return isinstance(why, Reason) and why.code == code


def joined(reasons: Iterable[Why]) -> str:
    """The sentences of ``reasons`` as one text."""
    return "; ".join(map(str, reasons))


_EXACT: Final = frozenset({bool, int, float, str, type(None), Reason})
"""Types of arguments that stay as they are."""


def _made(code: str, args: dict[str, Value], text: str = "") -> Reason:
    try:
        return Reason(code, **args)
    except LookupError:  # another version's
        if not text:
            raise
        return _with_text(code, args, text)


def _with_text(code: str, args: Mapping[str, Value], text: str) -> Reason:
    """Return a reason of another version, whose sentence is not made here."""
    made = str.__new__(Reason, text)
    object.__setattr__(made, "code", code)
    object.__setattr__(made, "_args", dict(args))
    return made


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


def _value(data: Any, any_version: bool) -> Value:
    if isinstance(data, dict):
        return Reason.from_dict(data, any_version=any_version)
    return tuple(_value(each, any_version) for each in data) if isinstance(data, list) else data
