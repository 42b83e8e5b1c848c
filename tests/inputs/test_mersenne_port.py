"""The native first draw equals CPython's, whatever the seeds and the range; so does the native seed."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim import _core
from kvcache_sim.base import rng

WORD = 2**64 - 1
SEEDS = st.lists(
    st.one_of(st.integers(0, WORD), st.sampled_from([0, 1, 2**32 - 1, 2**32, 2**63, WORD])), max_size=50
)
STOPS = st.one_of(
    st.integers(1, WORD),
    st.integers(1, 5),
    st.integers(0, 63).flatmap(lambda bit: st.sampled_from([2**bit, 2**bit + 1, max(1, 2**bit - 1)])),
)


@given(SEEDS, STOPS)
def test_first_draw_equals_cpython(seeds, stop):
    drawn = _core.first_randrange(np.array(seeds, np.uint64), stop)
    assert drawn.tolist() == [random.Random(seed).randrange(stop) for seed in seeds]


@given(st.text(max_size=40), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_seeds_equal_the_formula(scope, ids):
    expected = [rng.hash_id_seed(42, hash_id, scope) for hash_id in ids]
    assert _core.seeds_of_ids(f"42:{scope}:", np.array(ids, np.int64)).tolist() == expected
    assert _core.seeds_of_names(f"42:{scope}:", [str(hash_id) for hash_id in ids]).tolist() == expected


def test_an_empty_range_is_refused():
    with pytest.raises(ValueError, match="empty"):
        _core.first_randrange(np.array([1], np.uint64), 0)
