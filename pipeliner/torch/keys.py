"""What a kernel on disk is known by: the workload, the GPU, and everything that makes a kernel."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from pathlib import Path
from typing import Any, Final

from .. import knobs, versions
from ..records.candidate import machine_key, versions_key, workload_key
from ..schedules.workloads import Spec

FORMAT: Final = 1
"""Of the files; another one's entries have other keys."""

_PACKAGE: Final = Path(__file__).parents[1]


def kernel_key(spec: Spec, target: Any, candidate: str) -> str:
    """The key as text; ``candidate``: that of a record, or empty for the model's choice."""
    return json.dumps(
        {
            "format": FORMAT,
            "workload": workload_key(spec),
            "gpu": machine_key(target),
            "arch": str(target.attrs["arch"]),
            "candidate": candidate,
            "versions": versions_key(),
            "ffi": versions.installed("tvm_ffi"),
            "sources": sources(),
            "nvcc": [knobs.fast_math(), *knobs.ptxas_options()],
        },
        sort_keys=True,
    )


@functools.cache
def sources() -> str:
    """The SHA-256 of this library's own files: an edited pass makes other kernels."""
    digest = hashlib.sha256()
    found = [
        os.path.join(folder, name)  # passes/ and schedules/ are links in a checkout
        for folder, _, names in os.walk(_PACKAGE, followlinks=True)
        for name in names
        if name.endswith(".py")
    ]
    for path in sorted(found):
        digest.update(os.path.relpath(path, _PACKAGE).encode())
        digest.update(Path(path).read_bytes())
    return digest.hexdigest()
