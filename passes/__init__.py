"""Passes from TensorIR to TensorIR: one file a pass, in the order of ``carry_out.py``.

``SoftwarePipeline`` is the pass to use among TVM's own; it loads on first use, as does TVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .software_pipeline import SoftwarePipeline

__all__ = ["SoftwarePipeline"]


def __getattr__(name: str) -> Any:
    if name == "SoftwarePipeline":
        from .software_pipeline import SoftwarePipeline

        return SoftwarePipeline
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
