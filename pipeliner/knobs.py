"""Every environment variable that pipeliner reads, in one place.

``PIPELINER_NVCC``: the nvcc to use, before every other place it is looked for. ``CUDA_PATH`` and
``CUDA_HOME``: a CUDA toolkit. ``PIPELINER_DB``: the file of records that tuning writes and building
reads. ``PIPELINER_CACHE``: the folder of kernels that are kept for PyTorch, and of proofs (default:
``pipeliner`` in ``XDG_CACHE_HOME`` or ``~/.cache``), ``PIPELINER_CACHE_MB``: the most megabytes of
these kernels.
``PIPELINER_PROVE``: ``never`` proves nothing beside nvcc (default: ``auto``).
``NO_COLOR``: plain output (https://no-color.org).
``NVCC_APPEND_FLAGS``: nvcc's own, kept where pipeliner appends to it.
``LD_LIBRARY_PATH``: passed on to processes that get further libraries.
``TVM_CUDA_NVCC_NO_FAST_MATH``, ``TVM_CUDA_PTXAS_REG_LEVEL``, ``TVM_CUDA_PTXAS_EXTRA_OPTS``: TVM's
own switches for nvcc, honoured so that what we show is what TVM runs.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_APPENDED: Final = "NVCC_APPEND_FLAGS"
_PROVE: Final = "PIPELINER_PROVE"
UNPROVED: Final = {_PROVE: "never"}
"""What the environment has where nothing is to be proved beside nvcc."""


def nvcc() -> str | None:
    """The nvcc that the user names, if any."""
    return os.environ.get("PIPELINER_NVCC") or None


def records() -> str | None:
    """The file of records that the user names, if any."""
    return os.environ.get("PIPELINER_DB") or None


def cache_folder() -> Path:
    """Where kernels compiled for PyTorch are kept, and proofs."""
    named = os.environ.get("PIPELINER_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pipeliner"


def cache_megabytes() -> str:
    """How many megabytes of compiled kernels are kept, as the user says it."""
    return os.environ.get("PIPELINER_CACHE_MB") or "1024"


def proves() -> bool:
    """Whether kernels may be proved beside nvcc: the user does not say never."""
    return os.environ.get(_PROVE, "auto") != "never"


def cuda_roots() -> list[Path]:
    """CUDA toolkits that the environment names, first one first."""
    named = (os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"))
    return [Path(root) for root in dict.fromkeys(named) if root]


def library_path(folders: Iterable[Path]) -> str:
    """What a process is to have as LD_LIBRARY_PATH: ``folders``, and then what this one has."""
    here = os.environ.get("LD_LIBRARY_PATH", "")
    return os.pathsep.join([*map(str, folders), *([here] if here else [])])


def fast_math() -> bool:
    """Whether TVM passes ``--use_fast_math`` to nvcc."""
    return not os.environ.get("TVM_CUDA_NVCC_NO_FAST_MATH")


def ptxas_options() -> list[str]:
    """The options that TVM passes on to ptxas."""
    level = os.environ.get("TVM_CUDA_PTXAS_REG_LEVEL", "10")
    extra = shlex.split(os.environ.get("TVM_CUDA_PTXAS_EXTRA_OPTS", ""))
    return ["-v", f"--register-usage-level={level}", "--warn-on-local-memory-usage", *extra]


def color() -> bool:
    """Whether output to a terminal may be coloured."""
    return "NO_COLOR" not in os.environ


@contextmanager
def tvm_uses_nvcc(folder: Path, options: Sequence[str] = ()) -> Iterator[None]:
    """TVM compiles CUDA with the nvcc in ``folder``: it takes the first on PATH, or else NVRTC.

    ``options``: for nvcc, behind those that TVM gives it.
    """
    wanted = {
        "TVM_CUDA_COMPILE_MODE": "nvcc",
        "PATH": os.pathsep.join([str(folder), os.environ.get("PATH", "")]),
    }
    if options:
        wanted[_APPENDED] = " ".join([os.environ.get(_APPENDED, ""), *options]).strip()
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
