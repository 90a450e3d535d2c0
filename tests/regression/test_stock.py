"""The defects are real: the emulator shows them in TVM 0.27's own lowering of the same functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ..corpus.annotated import simt_gemm
from ..corpus.harness import assert_right, run
from . import functions
from .checks import data, gemm_inputs, product
from .functions import annotate


def interleaved() -> tuple[Any, dict, dict]:
    inputs = gemm_inputs()
    return simt_gemm([0, 0, 2], [0, 2, 1], [0]), inputs, product(inputs)


def short_dynamic() -> tuple[Any, dict, dict]:
    inputs = {**gemm_inputs(8), "n": 1}
    return functions.dynamic_k_gemm([0, 0, 1]), inputs, product(inputs)


def outlives() -> tuple[Any, dict, dict]:
    inputs = {"A": data(16, 16)}
    truth = {"C": inputs["A"][::-1].copy(), "last": inputs["A"][::-1, 15].copy()}
    return annotate(functions.used_after_the_loop, [0, 1], [0, 1]), inputs, truth


def reordered() -> tuple[Any, dict, dict]:
    inputs = {"A": data(16, 16), "first": data(16, seed=1)}
    truth = {"C": inputs["A"].copy()}
    truth["C"][0], truth["C"][1:] = inputs["first"], inputs["A"][:-1]
    truth["C"] += 1
    return annotate(functions.read_then_overwrite, [0, 0], [1, 0]), inputs, truth


def user_ring() -> tuple[Any, dict, dict]:
    inputs = {"A": data(16, 64)}
    truth = {"C": np.concatenate([inputs["A"][:3], inputs["A"][:13]])[:, ::-1]}
    return functions.hand_written_ring, inputs, truth


@pytest.mark.parametrize("defect", [interleaved, short_dynamic, outlives, reordered, user_ring])
def test_stock_lowering_gives_a_wrong_answer_or_a_hazard(defect: Any) -> None:
    func, inputs, truth = defect()
    config = {"tirx.use_async_copy": True}
    emulation = run(func, inputs, truth, lowering="s_tir", config=config)
    with pytest.raises(AssertionError):
        assert_right(emulation, truth, 1e-3)
