"""The command: ``pipeliner doctor``, ``plan``, ``tune`` and what else ``COMMANDS`` has.

Exit codes: 0 done; 1 the request cannot be done (one line on stderr, ``-v`` for the traceback);
2 usage; 130 interrupted. Data goes to stdout, talk to stderr; with ``--json``, what went wrong is
an object ``error`` on stdout, too. Nothing here imports TVM.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Final

from . import versions
from .commands.kernels import (
    build,
    completion,
    demo,
    doctor,
    inspect,
    passes,
    plan,
    timeline,
    verify,
)
from .commands.lab import (
    ablate,
    bench,
    calibrate,
    constants,
    experiment,
    record,
    regret,
    replay,
    report,
    residuals,
    tune,
)
from .commands.shared import console, usage
from .commands.shared.usage import EXIT_INTERRUPTED
from .diagnostics import Reason
from .errors import PipelinerError

COMMANDS: Final = {
    "doctor": doctor,
    "demo": demo,
    "plan": plan,
    "inspect": inspect,
    "passes": passes,
    "timeline": timeline,
    "verify": verify,
    "bench": bench,
    "build": build,
    "tune": tune,
    "experiment": experiment,
    "report": report,
    "calibrate": calibrate,
    "constants": constants,
    "record": record,
    "regret": regret,
    "replay": replay,
    "ablate": ablate,
    "residuals": residuals,
    "completion": completion,
}

WITHOUT_TVM: Final = ("doctor", "completion")
"""Commands that work where TVM is missing or refused."""

EPILOG: Final = """\
examples:
  pipeliner demo                                    a GEMM step by step: plan, CUDA, check
  pipeliner plan conv2d --target h100 --why         what was considered, and its time
  pipeliner verify gemm --m 100 --target rtx4090    every thread on numpy, no GPU needed

exit codes: 0 done, 1 cannot be done, 2 usage, 130 interrupted"""

EXIT_FAILED: Final = 1


def parser(argv: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The argument parser of the whole command; ``argv``: of the commands named in it alone."""
    top = usage.Parser(
        prog="pipeliner",
        description="Software pipelining for TensorIR: the schedule, the reasons and the CUDA.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.as_json = "--json" in (argv or ())
    top.add_argument("--version", action="version", version=f"pipeliner {versions.OWN}")
    common = usage.Parser(add_help=False)
    common.add_argument("-v", "--verbose", action="store_true", help="show tracebacks")
    common.add_argument("--nvcc", metavar="PATH", help="the nvcc to use (or set PIPELINER_NVCC)")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        sub = commands.add_parser(name, help=module.HELP, description=module.HELP, parents=[common])
        if argv is None or name in argv:  # options of the others would only take time
            module.configure(sub)
            usage.offer_help_all(sub)
        sub.set_defaults(run=module.run, parser=sub, whole=parser)
        sub.as_json = top.as_json
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    given = sys.argv[1:] if argv is None else argv
    args, unknown = parser(given).parse_known_args(given)
    if unknown:
        args.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    as_json = bool(getattr(args, "json", False))
    if args.nvcc:
        os.environ["PIPELINER_NVCC"] = args.nvcc
    try:
        if args.command not in WITHOUT_TVM:
            versions.require()
        code = int(args.run(args))
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("pipeliner: interrupted", file=sys.stderr)
        if as_json:
            console.print_error("interrupted", "interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader has what it wanted, as in `pipeliner inspect | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as err:
        if args.verbose:
            traceback.print_exc()
        text = _one_line(err, args.verbose)
        print(f"pipeliner: {text}", file=sys.stderr)
        if as_json:
            _print_error(err, text)
        return EXIT_FAILED


def _print_error(err: Exception, text: str) -> None:
    """The error as JSON: the code of its reason with its arguments, where it has one."""
    kind = type(err).__name__
    reason = getattr(err, "reason", err.args[0] if err.args else None)
    if isinstance(reason, Reason):
        console.print_error(**reason.as_dict(), type=kind)
    else:
        console.print_error("unexpected", text, type=kind)


def _one_line(err: Exception, verbose: bool) -> str:
    """The error as one line; what is not ours says so and how to see more."""
    text = " ".join(str(err).split())
    if isinstance(err, PipelinerError | ImportError | OSError):
        return text
    lines = [line.strip() for line in str(err).splitlines() if line.strip()]
    hint = "" if verbose else " (-v shows the traceback)"
    return f"unexpected {type(err).__name__}: {lines[-1] if lines else '(no message)'}{hint}"
