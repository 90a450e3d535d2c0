"""numpy in torch's place."""

from __future__ import annotations

from tests.bench.conftest import torch

__all__ = ["torch"]
