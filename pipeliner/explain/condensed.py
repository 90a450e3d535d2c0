"""TensorIR as text for reading: what is computed and in which order, without the bookkeeping.

    with T.attr("load", "pipeliner.origin", "op=load|stage=0|phase=prologue|iteration=0"):
        with T.sblock("load"):
            T.reads(X[bx, 0, tx])
            T.writes(S[0, tx])
            T.ptx.cp(T.cuda.cvta_generic_to_shared(T.address_of(S[0, tx])),
                     T.address_of(X[bx, 0, tx]), 4, "async", "ca", "shared", "global", "", "")
    =>
    cp.async.ca.shared.global(&S[0, tx], &X[bx, 0, tx], 4)  # load, stage 0

Blocks, regions and attributes are left out, PTX instructions have their names, neighbouring
registers are one range, and the op of a statement stands behind its first line. It is no TVMScript
any more.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from typing import Final

from ..values.origin import Origin

_OPENS: Final = re.compile(r"with T\.(?:sblock|attr)\(.*\):$")
_NOTHING: Final = re.compile(
    r"$|[#@]|from |(?:T\.(?:reads|writes|where|func_attr|sblock_attr|attr)\()"
)
_ORIGIN: Final = re.compile(r'T\.attr\(.*, "pipeliner\.(origin|op)", ("(?:[^"\\]|\\.)*")\):?$')
_CALL: Final = re.compile(r"\bT\.(ptx\.\w+|cuda\.cvta_generic_to_shared|address_of)\(")
_ELEMENT: Final = re.compile(r"(\w+)\[(\d+)\]")
_PLAIN: Final = (
    (re.compile(r"T\.serial\((.*), annotations=\{.*\}\):$"), r"range(\1):"),
    (re.compile(r', thread="[\w.]+"\):$'), "):"),
    (re.compile(r'T\.tvm_storage_sync\("shared.*\)$'), "barrier()"),
)


def condensed(script: str) -> str:
    """``script``, as TVM prints a function or a module, for reading."""
    return "\n".join(_lines(script))


def _lines(script: str) -> Iterator[str]:
    left_out: list[int] = []
    op = ""
    for line in script.splitlines():
        text = line.lstrip()
        indent = len(line) - len(text)
        while left_out and text and left_out[-1] >= indent:
            left_out.pop()
        op = op or _op(text)
        if _OPENS.match(text):
            left_out.append(indent)
        elif not _NOTHING.match(text):
            for pattern, plain in _PLAIN:
                text = pattern.sub(plain, text)
            margin = " " * (indent - 4 * len(left_out))
            yield f"{margin}{_called(text)}{op and f'  # {op}'}"
            op = ""


def _op(text: str) -> str:
    """The op, its stage and why it was added, where ``text`` is an attribute that says so."""
    found = _ORIGIN.match(text.removeprefix("with "))
    if found is None:
        return ""
    value = str(ast.literal_eval(found[2]))
    if found[1] == "op":
        return value
    origin = Origin.parse(value)
    parts = [origin.op or origin.kind, origin.role]
    parts += [f"stage {origin.stage}" if origin.stage is not None else "", origin.reason]
    return ", ".join(filter(None, parts))


def _called(text: str) -> str:
    """``text`` with PTX by name, and ``&`` for addresses."""
    found = _CALL.search(text)
    if found is None:
        return text
    arguments, end = _arguments(text, found.end())
    if found[1].startswith("ptx."):
        names = [one[1:-1] for one in arguments if one.startswith('"')]
        operands = [one for one in arguments if not one.startswith('"')]
        name = ".".join(filter(None, [found[1].removeprefix("ptx."), *names]))
        inner = f"{name}({', '.join(_ranges(operands))})"
    elif found[1] == "address_of":
        inner = f"&{', '.join(arguments)}"
    else:
        inner = ", ".join(arguments)
    return _called(f"{text[: found.start()]}{inner}{text[end:]}")


def _ranges(operands: list[str]) -> Iterator[str]:
    """``operands`` with neighbouring elements ``R[4], R[5], ..., R[8]`` as ``R[4:9]``."""
    at = 0
    while at < len(operands):
        element = _ELEMENT.fullmatch(operands[at])
        end = at + 1
        if element is not None:
            name, first = element[1], int(element[2])
            while operands[end : end + 1] == [f"{name}[{first + end - at}]"]:
                end += 1
        yield operands[at] if end == at + 1 else f"{name}[{first}:{first + end - at}]"
        at = end


def _arguments(text: str, start: int) -> tuple[list[str], int]:
    """The arguments of the call that opens before ``start``, and the position behind it."""
    depth, cuts, quoted = 0, [start - 1], False
    for at, char in enumerate(text[start:], start):
        if char == '"' and text[at - 1] != "\\":
            quoted = not quoted
        elif quoted:
            continue
        elif char in "([{":
            depth += 1
        elif char in ")]}" and depth:
            depth -= 1
        elif not depth and char in ",)":
            cuts.append(at)
        if char == ")" and cuts[-1] == at:
            break
    inner = [text[one + 1 : other].strip() for one, other in itertools.pairwise(cuts)]
    return [one for one in inner if one], cuts[-1] + 1
