"""``pipeliner completion``: what a shell needs to complete the command, as a script of its own.

The script has all options and their values: completing starts no Python.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, Final

from ...errors import ToolError
from ..shared import specs, usage

HELP: Final = "print a script that completes the command in bash, zsh, fish or tcsh"

SHELLS: Final = ("bash", "zsh", "fish", "tcsh")

_CHOICES: Final = re.compile(r"\{(.*)\}")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.description = (
        f'{HELP}. bash: eval "$(pipeliner completion bash)" in ~/.bashrc; zsh: write it to a file '
        "_pipeliner in a folder of fpath; fish: to ~/.config/fish/completions/pipeliner.fish."
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")


def run(args: argparse.Namespace) -> int:
    """Print the script; ToolError: shtab, which writes it, is missing."""
    if find_spec("shtab") is None:
        raise ToolError("completion.missing")
    import shtab

    print(shtab.complete(completed(args.whole()), args.shell))
    return 0


def completed(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """``parser`` with the values of its options as shtab reads them, rare options included."""
    import shtab

    from ...machine import NAMES

    kinds: dict[str, dict[str, str]] = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}
    for action in _actions(parser):
        usage.show(action)
        metavar = action.metavar if isinstance(action.metavar, str) else ""
        choices = _CHOICES.fullmatch(metavar)
        if metavar in kinds:
            vars(action)["complete"] = kinds[metavar]
        elif action.dest == "workload":
            action.choices = list(specs.KINDS)
        elif action.dest == "target":
            action.choices = list(NAMES)
        elif choices is not None and action.choices is None:
            action.choices = choices[1].split(",")
    return parser


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of ``parser`` and of its commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            commands: dict[str, Any] = action.choices
            for command in commands.values():
                yield from _actions(command)
        else:
            yield action
