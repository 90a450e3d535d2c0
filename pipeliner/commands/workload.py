"""What a command works on: a GEMM described by options, or a function of the user's own."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import PipelinerError, PlanError, WorkloadError

if TYPE_CHECKING:
    from ..request import Request
    from ..schedules.tiles import GemmTile
    from ..schedules.workloads import Gemm

GEMM: Final = "gemm"
SIZE: Final = 4096
"""Extent of a GEMM where the command line gives none."""

DEFAULT_TARGET: Final = "h100"
"""The GPU that is planned for where none is named and none is present."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A scheduled function to pipeline. ``gemm`` and ``tile`` are set where it is one of ours."""

    function: Any
    target: Any
    request: Request
    gemm: Gemm | None = None
    tile: GemmTile | None = None
    reference: Any = None

    @property
    def title(self) -> str:
        """What a person calls it."""
        if self.gemm is None:
            return str(self.function.attrs["global_symbol"])
        return describe(self.gemm)


def configure(parser: argparse.ArgumentParser, *, default: str | None = None) -> None:
    """Add the arguments that say what to work on and what is asked of it."""
    parser.add_argument(
        "workload",
        nargs="?" if default else None,
        default=default,
        help="'gemm', or file.py:name for a PrimFunc or Schedule, or a function that returns one",
    )
    shape = parser.add_argument_group("the GEMM: C[m, n] = sum over k of A[m, k] * B[k, n]")
    for name in ("m", "n", "k"):
        shape.add_argument(f"--{name}", type=int, help=f"extent {name.upper()} (default: {SIZE})")
    shape.add_argument("--batch", type=int, help="multiply that many pairs of matrices")
    shape.add_argument("--dtype", default="float16", help="fp32, tf32, fp16 (default), bf16, int8")
    shape.add_argument("--out", default="", help="type of C (default: that of A, int8: int32)")
    shape.add_argument("--layout", default="NT", help="NN, NT (default: both K-major), TN or TT")
    shape.add_argument("--tile", type=_tile, help="tile of a CTA, MxNxK (default: chosen)")
    asked = parser.add_argument_group("what is asked (default: chosen by the cost model)")
    asked.add_argument("--target", help="a100, h100, sm_80, sm_90 ... (default: this GPU, or h100)")
    asked.add_argument("--depth", default="auto", help="slots of each ring, or BUFFER=N[,...]")
    asked.add_argument("--mechanism", default="auto", help="cp_async, register or direct")
    asked.add_argument("--instruction", default="auto", help="simt or mma")
    asked.add_argument("--epilogue", default="auto", help="rolled, clamped or peeled")
    asked.add_argument("--warps", type=_pair, help="warps along M and N, such as 2x4")
    asked.add_argument("--thread-tile", type=_pair, help="elements of C of a SIMT thread, 8x8")
    asked.add_argument("--plan", metavar="FILE", help="a plan to obey (JSON of `plan --json`)")


def load(args: argparse.Namespace, size: int = SIZE) -> Workload:
    """What the arguments describe; ``size``: extents that they leave open."""
    from ..targets import cuda_target, gpu

    target = cuda_target(args.target or (None if gpu() else DEFAULT_TARGET))
    request = _request(args)
    if args.workload != GEMM:
        function, reference = _user_function(args.workload)
        return Workload(function, target, request, reference=reference)
    from ..schedules.workloads import Gemm

    gemm = Gemm(
        m=size if args.m is None else args.m,
        n=size if args.n is None else args.n,
        k=size if args.k is None else args.k,
        batch=args.batch,
        dtype=args.dtype,
        layout=args.layout.upper(),
        out=args.out,
    )
    return gemm_workload(gemm, target, request, args.tile)


def gemm_workload(
    gemm: Gemm, target: Any, request: Request, tile: tuple[int, int, int] | None = None
) -> Workload:
    """A GEMM with its tile, given or chosen."""
    from ..schedules.gemm import schedule_gemm
    from ..schedules.tiles import GemmTile

    sizes = GemmTile(*tile) if tile else choose_tile(gemm, target)
    schedule = schedule_gemm(gemm, sizes)
    return Workload(schedule, target, request, gemm, sizes)


def describe(gemm: Gemm) -> str:
    """A GEMM in words: ``fp16 GEMM 4096 x 4096 x 4096 NT``."""
    batch = f"{gemm.batch} x " if gemm.batch else ""
    out = "" if gemm.out == gemm.dtype else f" -> {gemm.out}"
    return f"{gemm.dtype}{out} GEMM {batch}{gemm.m} x {gemm.n} x {gemm.k} {gemm.layout}"


def choose_tile(gemm: Gemm, target: Any) -> GemmTile:
    """The tile that the schedules recommend for a GEMM on the target's machine."""
    from ..machine import machine_for
    from ..schedules.tiles import default_tile

    return default_tile(gemm, machine_for(target))


def _request(args: argparse.Namespace) -> Request:
    from ..plan import KernelPlan
    from ..request import Request

    plan = KernelPlan.from_json(_read(Path(args.plan))) if args.plan else None
    return Request(
        depth=_depth(args.depth),
        mechanism=args.mechanism,
        instruction=args.instruction,
        epilogue=args.epilogue,
        warps=args.warps,
        thread_tile=args.thread_tile,
        plan=plan,
    )


def _depth(text: str) -> Any:
    """``auto``, a number, or ``A_shared=4,B_shared=3``."""
    if text == "auto":
        return text
    try:
        if "=" not in text:
            return int(text)
        pairs = (item.split("=") for item in text.split(","))
        return {name: int(slots) for name, slots in pairs}
    except ValueError as err:
        raise PlanError(f"expected depth to be auto, N or BUFFER=N[,...], not {text!r}") from err


def _user_function(spec: str) -> tuple[Any, Any]:
    """The function that ``file.py:name`` names, and the file's ``reference`` if it has one."""
    file, colon, name = spec.rpartition(":")
    path = Path(file)
    if not colon or not name:
        raise WorkloadError(f"expected 'gemm' or file.py:name, not {spec!r}")
    if not path.is_file():
        raise WorkloadError(f"cannot load '{spec}': there is no file '{path}'")
    module = _import(path)
    value = getattr(module, name, None)
    if value is None:
        raise WorkloadError(f"cannot load '{spec}': '{path}' does not define '{name}'")
    if callable(value) and not hasattr(value, "body"):
        value = value()
    from ..compiled import as_module, only_function

    return only_function(as_module(value)), getattr(module, "reference", None)


def _import(path: Path) -> Any:
    """The module in ``path``; WorkloadError is one line with the line of the file at fault."""
    spec = importlib.util.spec_from_file_location(f"pipeliner_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise WorkloadError(f"cannot load '{path}': expected a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # TVMScript and dataclasses look their module up
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except PipelinerError:
        raise
    except Exception as err:
        message = (str(err).strip().splitlines() or [""])[0]
        raise WorkloadError(f"cannot load '{path}': {type(err).__name__}: {message}") from err
    finally:
        sys.path.pop(0)
    return module


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as err:
        raise PlanError(f"cannot read plan '{path}': {err.strerror}") from err


def _tile(text: str) -> tuple[int, int, int]:
    m, n, k = _numbers(text, 3)
    return m, n, k


def _pair(text: str) -> tuple[int, int]:
    first, second = _numbers(text, 2)
    return first, second


def _numbers(text: str, count: int) -> list[int]:
    try:
        numbers = [int(part) for part in text.lower().split("x")]
    except ValueError:
        numbers = []
    if len(numbers) != count:
        raise argparse.ArgumentTypeError(f"expected {'x'.join('MNK'[:count])}, not {text!r}")
    return numbers
