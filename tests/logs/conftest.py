"""numpy in torch's place."""

from __future__ import annotations

from tests.measuring.conftest import torch

__all__ = ["torch"]
