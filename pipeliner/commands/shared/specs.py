"""The workloads that a command line can describe: one table, from a name to what its options make.

Every workload reads its extents from options of the same names as the tensors' dimensions; an
option that a workload does not have is an error, not a silence.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ...diagnostics import Reason
from ...diagnostics.formatting import nearest
from ...errors import WorkloadError
from .usage import RenamedOption, rare

if TYPE_CHECKING:
    from ...schedules.workloads import Spec

GEMM: Final = "gemm"
GATED: Final = "gated"
ATTENTION: Final = "attention"
SCALED: Final = "scaled"
ROWS: Final = "rows"
BACK_TO_BACK: Final = "back_to_back"
GROUPED: Final = "grouped"
PACKED: Final = "packed"

ACTIVATIONS: Final = ("relu", "gelu", "silu")
STEPS: Final = ("bias", "residual", "scale", *ACTIVATIONS)
"""Steps of an epilogue, known here before the workloads are loaded."""

ROW_STATISTICS: Final = ("rms", "sum", "lse")
"""Statistics of rows, known here before the workloads are loaded."""

GRADIENTS: Final = ("input", "weight")

_CONV_SIZE: Final[Mapping[str, int]] = {"n": 32, "d": 8, "h": 56, "w": 56, "c": 64, "k": 64}
_CONV_SMALL: Final[Mapping[str, int]] = {"n": 1, "d": 6, "h": 14, "w": 14, "c": 64, "k": 64}
_KERNEL: Final = 3
_ATTENTION: Final[Mapping[str, int]] = {
    "batch": 1,
    "heads": 16,
    "queries": 4096,
    "keys": 4096,
    "dim": 128,
}
_ATTENTION_SMALL: Final[Mapping[str, int]] = {
    "batch": 1,
    "heads": 2,
    "queries": 192,
    "keys": 256,
    "dim": 64,
}

_RARE: Final = (
    *("d", "t", "r", "s", "batch", "weights", "activation", "dilation", "groups", "grad", "out"),
    *(
        "splits",
        "persistent",
        "heads",
        "kv_heads",
        "queries",
        "keys",
        "dim",
        "causal",
        "statistic",
        "p",
        "experts",
    ),
)
"""Options that ``--help-all`` shows and ``--help`` does not."""

_IMAGE: Final = {1: ("w",), 2: ("h", "w"), 3: ("d", "h", "w")}
_POSITIONS: Final = {1: ("s",), 2: ("r", "s"), 3: ("t", "r", "s")}


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """``options``: the shape options it has. ``make``: the workload; given a size, a small one."""

    options: tuple[str, ...]
    make: Callable[[argparse.Namespace, int | None], Spec]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options that give a workload its shape and types."""
    shape = parser.add_argument_group(
        "the workload",
        "gemm: C[m, n] = sum over k of A[m, k] * B[k, n]. gated: C = silu(A * B1) * (A * B2). "
        "attention: O = softmax(Q * K / sqrt(dim)) * V. rows: C with a statistic of rows. "
        "back_to_back: O = relu(A * B) * C. "
        "grouped: rows of A in groups, each with a matrix B of its own. "
        "packed: weights of 4 bits with a scale for each 128 of K. "
        "conv2d: n images of h x w x c, k filters of r x s; conv1d without h and r, conv3d with d "
        "and t.",
    )
    extents = {
        "m": "rows of C",
        "n": "columns of C; images; columns between back to back products",
        "k": "what a GEMM sums over; output channels",
        "p": "columns of the second of two products",
        "d": "depth of an image",
        "h": "height of an image",
        "w": "width of an image",
        "c": "input channels",
        "t": "depth of a filter (default: 3)",
        "r": "height of a filter (default: 3)",
        "s": "width of a filter (default: 3)",
        "experts": "groups of a grouped GEMM, each with a B (default: 8)",
        "heads": "heads of queries",
        "kv-heads": "heads of keys and values, where queries share them",
        "queries": "queries of each head",
        "keys": "keys and values of each head",
        "dim": "columns of a head",
    }
    for name, text in extents.items():
        shape.add_argument(f"--{name}", type=int, help=text)
    shape.add_argument(
        "--batch", type=int, help="multiply that many pairs of matrices; batches of attention"
    )
    shape.add_argument(
        "--causal",
        action="store_true",
        default=None,
        help="let each query see the keys up to its own place alone",
    )
    each = "a number, or one for each dimension: 2 or 1,2"
    shape.add_argument("--weights", help="type of a GEMM's B in memory: int8 beside fp16 or bf16")
    shape.add_argument(
        "--activation",
        choices=ACTIVATIONS,
        help="of a gated GEMM (default: silu), or between two (default: relu)",
    )
    shape.add_argument(
        "--statistic",
        choices=ROW_STATISTICS,
        help="of rows: divided by the root mean square of A's (rms, the default), or with the sum "
        "and maximum (sum) or the log-sum-exp (lse) of the result's",
    )
    shape.add_argument("--stride", type=_numbers, help=each)
    shape.add_argument(
        "--pad",
        type=_numbers,
        help="a number, one for each dimension, or before and after each: 1 or 0,1,0,1 "
        "(default: what keeps the size at stride 1)",
    )
    shape.add_argument("--dilation", type=_numbers, help=each)
    shape.add_argument("--groups", type=int, help="groups of channels (default: 1)")
    shape.add_argument("--grad", choices=GRADIENTS, help="the gradient of the input or the weights")
    types = "fp32, tf32, fp16 (default), bf16, int8, uint8, e4m3, e5m2"
    shape.add_argument("--dtype", default="float16", help=types)
    shape.add_argument("--out", default="", help="type of the output (default: the inputs'; int32)")
    shape.add_argument(
        "--layout",
        help="gemm: NN, NT (default: both K-major), TN or TT; conv2d: NHWC (default) or NCHW",
    )
    shape.add_argument("--fuse", type=_steps, help=f"steps before the store: {','.join(STEPS)}")
    shape.add_argument(
        "--tile",
        type=_tile,
        help="tile of a CTA, MxNxK; of attention MxN, queries and keys; of rows, scaled, "
        "grouped, packed and back_to_back MxN (default: chosen)",
    )
    shape.add_argument(
        "--splits",
        type=int,
        help="split-K: partial sums of each output, computed by different CTAs",
    )
    shape.add_argument(
        "--persistent", type=int, help="CTAs of a persistent kernel; 0: a CTA for each tile"
    )
    for action in shape._group_actions:
        if action.dest in _RARE:
            rare(action)
    shape.add_argument(
        "--ctas", type=int, dest="persistent", action=RenamedOption, help=argparse.SUPPRESS
    )


def make(args: argparse.Namespace, size: int | None) -> Spec:
    """The workload that ``args`` describe; ``size``: make it about that small where they do not.

    WorkloadError: an option that it has not.
    """
    kind = KINDS[args.workload]
    for name in _SHAPE:
        if name not in kind.options and getattr(args, name) is not None:
            raise WorkloadError("option.not_of_workload", option=name, workload=args.workload)
    return kind.make(args, size)


def refuse(args: argparse.Namespace) -> None:
    """WorkloadError: an option gives a shape or types to a function that has its own."""
    for name in _SHAPE:
        if getattr(args, name) is not None:
            raise WorkloadError("option.not_of_workload", option=name, workload=args.workload)


def _without(args: argparse.Namespace, *options: str) -> None:
    """WorkloadError: an option is given that the workload has not."""
    for name in options:
        if getattr(args, name):
            raise WorkloadError("option.not_of_workload", option=name, workload=args.workload)


def _extents(args: argparse.Namespace, names: Iterable[str], usual: int) -> list[int]:
    """The extents that are asked for, each ``usual`` where it is not."""
    asked = (getattr(args, name) for name in names)
    return [usual if extent is None else int(extent) for extent in asked]


def _gemm(args: argparse.Namespace, size: int | None) -> Spec:
    from ...schedules.workloads import Gemm

    m, n, k = _extents(args, "mnk", SIZE if size is None else size)
    return Gemm(
        m=m,
        n=n,
        k=k,
        batch=args.batch,
        dtype=args.dtype,
        layout=(args.layout or "NT").upper(),
        out=args.out,
        epilogue=args.fuse or (),
        weights=args.weights or "",
    )


def _gated(args: argparse.Namespace, size: int | None) -> Spec:
    from ...schedules.workloads import GatedGemm

    one = _gemm(args, size)
    fields = {name: getattr(one, name) for name in ("m", "n", "k", "batch", "dtype", "layout")}
    activation = args.activation or "silu"
    return GatedGemm(**fields, out=args.out, epilogue=args.fuse or (), activation=activation)


def _attention(args: argparse.Namespace, size: int | None) -> Spec:
    from ...schedules.workloads import Attention

    _without(args, "layout", "out", "fuse")
    usual = _ATTENTION if size is None else _ATTENTION_SMALL
    extents: dict[str, Any] = {
        name: _extents(args, [name], value)[0] for name, value in usual.items()
    }
    return Attention(**extents, kv_heads=args.kv_heads, causal=bool(args.causal), dtype=args.dtype)


def _rows(args: argparse.Namespace, size: int | None) -> Spec:
    from ...schedules.workloads import RowGemm

    _without(args, "layout", "fuse")
    extent = SIZE if size is None else size
    m, n, k = _extents(args, "mnk", extent)
    return RowGemm(m, n, k, args.statistic or ROW_STATISTICS[0], args.dtype, args.out)


def _scaled(args: argparse.Namespace, size: int | None) -> Spec:
    from ...schedules.workloads import SCALED_DTYPES, ScaledGemm
    from ...schedules.workloads.base.dtypes import resolve

    _without(args, "layout", "fuse")
    extent = SIZE if size is None else size
    m, n, k = _extents(args, "mnk", extent)
    usual = resolve(args.dtype, "", "").dtype == "float16"  # what --dtype is where none is given
    return ScaledGemm(m, n, k, SCALED_DTYPES[0] if usual else args.dtype, args.out)


def _back_to_back(args: argparse.Namespace, size: int | None) -> Spec:
    from ...schedules.workloads import BackToBackGemm

    _without(args, "layout", "fuse")
    extent, columns = (SIZE, COLUMNS) if size is None else (size, COLUMNS // 2)
    m, n = _extents(args, "mn", extent)
    k, p = _extents(args, "kp", columns)
    activation = args.activation or "relu"
    return BackToBackGemm(m, n, k, p, activation, args.dtype, args.out)


def _grouped(args: argparse.Namespace, size: int | None) -> Spec:
    from ...schedules.workloads import GroupedGemm

    _without(args, "layout", "fuse")
    extent = SIZE if size is None else size
    m, n, k = _extents(args, "mnk", extent)
    (experts,) = _extents(args, ["experts"], EXPERTS)
    return GroupedGemm(experts, m, n, k, args.dtype, args.out)


def _packed(args: argparse.Namespace, size: int | None) -> Spec:
    from ...schedules.workloads import PackedGemm

    for name in ("layout", "fuse"):
        if getattr(args, name):
            raise WorkloadError("option.not_of_workload", option=name, workload=args.workload)
    extent = SIZE if size is None else size
    m, n, k = (getattr(args, name) or extent for name in "mnk")
    return PackedGemm(m, n, k, args.dtype, args.out)


def _conv(rank: int) -> Callable[[argparse.Namespace, int | None], Spec]:
    def make(args: argparse.Namespace, size: int | None) -> Spec:
        from ...schedules.workloads import ConvInputGrad, ConvWeightGrad, conv

        usual = _CONV_SIZE if size is None else _CONV_SMALL

        def extent(name: str) -> int:
            return _extents(args, [name], usual.get(name, _KERNEL))[0]

        kernel = [extent(name) for name in _POSITIONS[rank]]
        dilation = args.dilation or (1,)
        forward = conv(
            extent("n"),
            [extent(name) for name in _IMAGE[rank]],
            extent("c"),
            extent("k"),
            kernel,
            stride=args.stride or 1,
            pad=_same(kernel, dilation) if args.pad is None else args.pad,
            dilation=dilation,
            groups=1 if args.groups is None else args.groups,
            dtype=args.dtype,
            layout=(args.layout or "").upper(),
            out=args.out,
            epilogue=args.fuse or (),
        )
        if args.grad == "input":
            return ConvInputGrad(forward)
        return ConvWeightGrad(forward) if args.grad == "weight" else forward

    return make


def _same(kernel: list[int], dilation: tuple[int, ...]) -> tuple[int, ...]:
    """The padding on both sides that keeps the size where the kernel is odd."""
    each = dilation * len(kernel) if len(dilation) == 1 else dilation
    return tuple(step * (extent - 1) // 2 for extent, step in zip(kernel, each))


SIZE: Final = 4096
"""Extent of a GEMM where the command line gives none."""

COLUMNS: Final = 128
"""Columns of A and of C of back to back products where it gives none."""

EXPERTS: Final = 8
"""Of a grouped GEMM where the command line gives none."""

_WINDOW: Final = ("stride", "pad", "dilation", "groups", "grad")

KINDS: Final[Mapping[str, WorkloadKind]] = {
    GEMM: WorkloadKind(("m", "n", "k", "batch", "weights"), _gemm),
    GATED: WorkloadKind(("m", "n", "k", "batch", "activation"), _gated),
    ATTENTION: WorkloadKind((*_ATTENTION, "kv_heads", "causal"), _attention),
    ROWS: WorkloadKind(("m", "n", "k", "statistic"), _rows),
    SCALED: WorkloadKind(("m", "n", "k"), _scaled),
    GROUPED: WorkloadKind(("experts", "m", "n", "k"), _grouped),
    PACKED: WorkloadKind(("m", "n", "k"), _packed),
    BACK_TO_BACK: WorkloadKind(("m", "n", "k", "p", "activation"), _back_to_back),
    **{
        f"conv{rank}d": WorkloadKind(
            ("n", "c", "k", *_IMAGE[rank], *_POSITIONS[rank], *_WINDOW), _conv(rank)
        )
        for rank in _IMAGE
    },
}

_SHAPE: Final = tuple(dict.fromkeys(name for kind in KINDS.values() for name in kind.options))


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        reason = Reason("usage.numbers", such="1 or 1,2", value=text)
        raise argparse.ArgumentTypeError(reason) from None


def _steps(text: str) -> tuple[str, ...]:
    steps = tuple(text.split(","))
    wrong = next((step for step in steps if step not in STEPS), None)
    if wrong is not None:
        near = nearest(wrong, STEPS)
        raise argparse.ArgumentTypeError(
            Reason("usage.names", choices=STEPS, value=wrong, near=near)
        )
    return steps


def _tile(text: str) -> tuple[int, ...]:
    return tuple(times(text, 2 if text.lower().count("x") == 1 else 3))


def times(text: str, count: int) -> list[int]:
    """``count`` numbers with an x between them."""
    try:
        numbers: list[Any] = [int(part) for part in text.lower().split("x")]
    except ValueError:
        numbers = []
    if len(numbers) != count:
        sizes = "x".join("MNK"[:count])
        raise argparse.ArgumentTypeError(Reason("usage.sizes", sizes=sizes, value=text))
    return numbers
