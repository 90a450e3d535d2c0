"""The benchmark believes that a GPU is here and that numpy is torch."""

from __future__ import annotations

import importlib
import sys

import pytest

from tests import fake_torch


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch):
    conditions = importlib.import_module("pipeliner.measuring.conditions")
    monkeypatch.setattr(conditions, "gpu", object)
    monkeypatch.setitem(sys.modules, "torch", fake_torch)
    return fake_torch
