"""Origins: their text reads back exactly, and their expressions take the loops' values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeliner.values.origin import Origin, Place

# Lone surrogates have no UTF-8, so no name in an IR can hold them.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["", "A_shared", "a|b", "100%", "x;y[0]", "~7C", "=", "a=b", "]", "(k + 2) % 3"]
)
places = st.builds(Place, texts.filter(bool), texts)
origins = st.builds(
    Origin,
    op=texts,
    kind=texts,
    block=texts,
    stage=st.none() | st.integers(0, 9),
    phase=texts,
    role=texts,
    iteration=texts,
    places=st.lists(places, max_size=3).map(tuple),
    reason=texts,
)


@given(origins)
def test_an_origin_reads_back_exactly(origin: Origin) -> None:
    assert Origin.parse(origin.text) == origin


def test_the_text_leaves_out_what_is_empty() -> None:
    origin = Origin("A", "copy", stage=0, phase="steady", places=(Place("S", "k % 3"), Place("T")))
    assert origin.text == "op=A|kind=copy|stage=0|phase=steady|places=S[k % 3];T"
    assert Origin.parse("") == Origin()


@pytest.mark.parametrize("text", ["A", "op=A|B", "colour=red", "op=A|op=B", "stage=x"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Origin.parse(text)


@pytest.mark.parametrize("k", range(7))
def test_slots_and_iterations_take_the_values_of_loops(k: int) -> None:
    origin = Origin(
        iteration="min(k * 2 + 1, 8 - 1)",
        places=(Place("S", "(k + 2) % 3"), Place("T", "k // 2"), Place("U"), Place("V", "n % 2")),
    )
    valued = origin.at({"k": k})
    assert valued.iteration == str(min(k * 2 + 1, 7))
    assert [place.slot for place in valued.places] == [str((k + 2) % 3), str(k // 2), "", "n % 2"]


def test_words_name_every_part() -> None:
    origin = Origin(
        "A.commit", "commit", "load_a", 1, "steady", "producer", "4", (Place("S", "1"),), "because"
    )
    assert str(origin) == (
        "A.commit, block load_a, stage 1, steady state, role producer, iteration 4, S[1], because"
    )
