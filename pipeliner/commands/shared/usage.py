"""Wrong usage: the usage of the command that was meant, one line, and what it may have meant."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn

from ...diagnostics import Reason
from ...diagnostics.formatting import nearest, sentence
from ...errors import WorkloadError
from ...values.released import option
from .console import print_error

EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130

_CHOICE: Final = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)")


class Parser(argparse.ArgumentParser):
    """An argument parser that says which of its options or choices a wrong one is nearest to.

    ``as_json``: it says so on stdout, too, as an object.
    """

    as_json = False

    def error(self, message: str) -> NoReturn:
        """Print usage and one line, and exit."""
        self.print_usage(sys.stderr)
        line = " ".join(message.split()) + self._near(message)
        if self.as_json:
            print_error("usage", line)
        self.exit(EXIT_USAGE, f"{self.prog}: error: {line}\n")

    def _near(self, message: str) -> str:
        choice = _CHOICE.search(message)
        if choice is not None:
            return did_you_mean(choice[1], re.findall(r"[\w.-]+", choice[2]))
        if not message.startswith(("unrecognized", "ambiguous")):
            return ""
        known = [name for action in self._actions for name in action.option_strings]
        wrong = [word.split("=")[0] for word in message.split() if word.startswith("--")]
        return next(filter(None, (did_you_mean(word, known) for word in wrong)), "")


class HelpAll(argparse.Action):
    """Print the help with the options that ``--help`` leaves out, and exit."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Show what ``rare`` has hidden."""
        for action in parser._actions:
            show(action)
        parser.print_help()
        parser.exit()


def rare(action: argparse.Action) -> argparse.Action:
    """``action`` as an option that only ``--help-all`` shows."""
    vars(action)["full_help"] = action.help
    action.help = argparse.SUPPRESS
    return action


def show(action: argparse.Action) -> None:
    """Undo ``rare``."""
    action.help = getattr(action, "full_help", action.help)


def offer_help_all(parser: argparse.ArgumentParser) -> None:
    """Add ``--help-all`` to a command that has rare options."""
    hidden = sum(hasattr(action, "full_help") for action in parser._actions)
    if hidden:
        text = f"this help with all options ({hidden} more) and exit"
        parser.add_argument("--help-all", action=HelpAll, nargs=0, help=text)


class RenamedOption(argparse.Action):
    """An option by its name in the release before; its ``dest`` is called as it is now."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Store the value, with a note."""
        note = Reason("usage.renamed", option=option_string, now=self.dest)
        print(f"{parser.prog}: note: {note}", file=sys.stderr)
        setattr(namespace, self.dest, option(self.dest, values))


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """``; did you mean 'right'?`` where one of ``known`` is near, else nothing."""
    return sentence("{name:near}", {"name": nearest(wrong, known)})


def check_least(args: argparse.Namespace, **least: int) -> None:
    """WorkloadError where an option that is given is less than it may be."""
    for name, low in least.items():
        value = getattr(args, name)
        if value is not None and value < low:
            raise WorkloadError("option.least", option=name, least=low, value=value)


def at_least(least: int) -> Callable[[str], int]:
    """The type of an option that is an integer of at least ``least``."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(Reason("usage.integer", least=least, value=text))
        return value

    return read
