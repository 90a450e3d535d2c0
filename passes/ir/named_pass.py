"""Name a rewrite: the value that a pass is, with its name, its file and its documentation.

    @named_pass("Expand")
    def expand(func, plan): ...     =>   expand(func, plan) as before; expand.name, .file, .doc

A pass is called like the function it is made of. ``steps`` runs it so that TVM sees it, and
``listed`` has all of them in the order in which they run.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

OURS: Final = "pipeliner."
"""What TVM's names of our passes begin with, as do our modules'."""

ARROW: Final = "=>"
"""What stands between before and after in a drawing."""


@dataclass(frozen=True, slots=True)
class Pass(Generic[_P, _T]):
    """A rewrite with a name: of a function, or of a module where it says so."""

    name: str
    rewrite: Callable[Concatenate[Any, _P], _T]

    def __call__(self, subject: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Return what ``rewrite`` makes of ``subject``."""
        return self.rewrite(subject, *args, **kwargs)

    @property
    def tvm_name(self) -> str:
        """The name that TVM's instruments see."""
        return f"{OURS}{self.name}"

    @property
    def file(self) -> str:
        """The file that it is in, from the top of the repository."""
        return f"{self.rewrite.__module__.removeprefix(OURS).replace('.', '/')}.py"

    @property
    def doc(self) -> str:
        """The docstring of its file, behind its own where that draws.

        A pass draws in its own docstring where its file has another pass, too.
        """
        own, of_file = (
            inspect.cleandoc(text or "")
            for text in (self.rewrite.__doc__, sys.modules[self.rewrite.__module__].__doc__)
        )
        return f"{own}\n\n{of_file}" if ARROW in own else of_file

    @property
    def summary(self) -> str:
        """The first line of ``doc``: what it does."""
        return self.doc.splitlines()[0]


def named_pass(
    name: str,
) -> Callable[[Callable[Concatenate[Any, _P], _T]], Pass[_P, _T]]:
    """Return a decorator that makes a rewrite the pass ``name``."""

    def made(rewrite: Callable[Concatenate[Any, _P], _T]) -> Pass[_P, _T]:
        return Pass(name, rewrite)

    return made
