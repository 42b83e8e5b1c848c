"""Colours that one chart may show together differ, and at most six series keep their names."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.tiers import KV_SOURCES
from kvcache_sim.report.colours import OTHER, colours_of
from kvcache_sim.report.pictures.waterfall import PARTS
from kvcache_sim.report.time_series import MOST_SERIES, drawn_as
from report.colour_distance import lab
from support.examples import examples
from support.product.machines import reported_by

#: Names that one picture may show together: the six largest of a group are drawn, so all of a group must differ.
GROUPS = {
    "parts of TTFT": [*PARTS, OTHER],
    "sources of tokens": [
        *KV_SOURCES,
        *(cause.name.replace("_", " ") for cause in reported_by("timed")),
        OTHER,
    ],
    "what is left of sessions": ["gpu", "cpu", "disk", "remote", "lost"],
    "states": ["held", "cached", "in flight", "free"],
    "curve": ["lru", "optimum", "upper bound", "prompts alone", "this run", "knee"],
    "unnamed": [f"channel-{n}" for n in range(5)] + [OTHER],
}


@pytest.mark.parametrize("group", GROUPS)
def test_no_two_parts_are_alike(group):
    for (one, a), (other, b) in combinations(zip(GROUPS[group], colours_of(GROUPS[group]), strict=True), 2):
        assert np.linalg.norm(lab(a) - lab(b)) > 20, (one, other)


@examples(100)
@given(st.dictionaries(st.text(min_size=1, max_size=5), st.floats(0, 1e6), max_size=12))
def test_the_largest_series_keep_their_names(amounts):
    shown = drawn_as(amounts)
    present = {name for name, amount in amounts.items() if amount > 0}
    assert set(shown) == present
    assert len(set(shown.values())) <= MOST_SERIES
    named = [name for name in present if shown[name] == name]
    rest = [name for name in present if shown[name] != name]
    assert not rest or len(named) >= MOST_SERIES - 1
    assert all(amounts[a] >= amounts[b] for a in named for b in rest)
