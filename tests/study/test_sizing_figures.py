"""Figures of a search for a size: the rate of arrivals, the interval of a rate, the best split and count."""

import math

import numpy as np
import pytest
from kvcache_sim.extras.study.sizing.further import Tried, rates_by_count
from kvcache_sim.extras.study.sizing.search import arrival_rate, rate_spread
from kvcache_sim.extras.study.sizing.splits import best_split
from report.finished_rows import written
from support.request_rows import rows

S = 10**9


def test_the_rate_of_n_arrivals_has_one_gap_less():
    assert arrival_rate(written(rows(3, arrival_ns=[5 * S, S, 3 * S]))) == 0.5


@pytest.mark.parametrize(("count", "batches", "t"), [(51, 10, 2.262), (1001, 20, 2.093)])
def test_the_interval_of_a_rate_follows_from_neighboring_batches(count, batches, t):
    """Loads of the batches alternate between 1 and e: each step of the logarithm is 1."""
    arrival = np.arange(count) * S
    batch = np.arange(count - 1) * batches // (count - 1)
    stayed = np.where(batch % 2, math.e, 1.0) * S
    finish = arrival + np.concatenate([[S], stayed]).astype(np.int64)
    spread = rate_spread({"arrival_ns": arrival, "finish_ns": finish})
    assert spread == pytest.approx(math.exp(t * math.sqrt(1 / 2 / batches)), rel=1e-6)


def test_of_equal_splits_the_one_with_fewest_prefill_machines_and_of_counts_the_best_rate():
    assert best_split({3: 2.0, 1: 2.0, 2: 1.0, 4: None}) == 1
    tried = [Tried({}, 4, 2.0), Tried({}, 4, 1.0), Tried({}, 4, None), Tried({}, 2, None)]
    assert rates_by_count(tried) == {4: 2.0, 2: None}
