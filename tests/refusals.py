"""What is refused, asked for by its code and arguments instead of by its words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pipeliner.diagnostics import Reason, Why
from pipeliner.errors import PipelinerError


@contextmanager
def refused(
    code: str, kind: type[PipelinerError] = PipelinerError, /, **args: Any
) -> Iterator[pytest.ExceptionInfo[PipelinerError]]:
    """That a ``kind`` is raised whose reason, or one that it gives for that, is ``code``.

    ``args``: arguments that this reason has, among others.
    """
    with pytest.raises(kind) as caught:
        yield caught
    found = the(code, [caught.value.reason])
    assert {name: found[name] for name in args} == args


def gives(why: Why, code: str, /, **args: Any) -> bool:
    """Whether ``why``, or a reason that it gives for that, is ``code`` with ``args`` among others."""
    return any(
        each.code == code and {name: each.args.get(name) for name in args} == args
        for each in Reason.of(why).walk()
    )


def the(code: str, reasons: Iterable[Why]) -> Reason:
    """The first reason with the code ``code`` among ``reasons`` and their arguments."""
    given = [reason for reason in reasons if isinstance(reason, Reason)]
    found = [each for reason in given for each in reason.walk() if each.code == code]
    assert found, f"expected a reason with the code {code!r}, not {reasons!r}"
    return found[0]


def says(code: str, reasons: Iterable[Why]) -> bool:
    """Whether one of ``reasons``, or of their arguments, has the code ``code``."""
    return any(isinstance(reason, Reason) and reason.has(code) for reason in reasons)


def printed(err: str) -> Reason:
    """The reason of the one line on stderr with which the command told of an error."""
    assert err.startswith("pipeliner: "), err
    assert err.count("\n") == 1, err
    return PipelinerError(err.removeprefix("pipeliner: ").removesuffix("\n")).reason


def told(err: str, code: str, /, **args: Any) -> None:
    """That stderr is the one line of an error whose reason, or one that it gives, is ``code``."""
    found = the(code, [printed(err)])
    assert {name: found[name] for name in args} == args
