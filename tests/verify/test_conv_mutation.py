"""Every synchronisation of a pipelined convolution that is deleted or weakened shows.

One case for each way that operands are read and added up; ``make verify-all`` has them all.
"""

from __future__ import annotations

import pytest

from .conv_mutation import check_mutants

READ_DIFFERENTLY = (
    "grouped",
    "strided and asymmetric",
    "stem in phases",
    "weight gradient fp32",
    "int8 bias relu",
    "channels first bias",
    "conv3d folded",
    "input gradient of thirds",
    "weight gradient by rows",
    "split runs",
    "split weight gradient",
)


@pytest.mark.part(12)
@pytest.mark.parametrize("case", READ_DIFFERENTLY)
def test_every_defect_of_a_convolution_shows(case: str) -> None:
    assert check_mutants(case)["killed"] >= 10
