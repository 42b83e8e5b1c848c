"""Figures of a search for a size: the rate of arrivals, the last step that attains, intervals, the best split."""

import math

import numpy as np
import pytest
from kvcache_sim.extras.study.sizing.further import MACHINES, Further, Tried, rates_by_count
from kvcache_sim.extras.study.sizing.search import arrival_rate, highest_attaining, rate_spread
from kvcache_sim.extras.study.sizing.splits import best_split
from kvcache_sim.extras.study.sweeps.cell import Cell, CellRecord, Study
from kvcache_sim.extras.study.sweeps.plan import Plan
from report.finished_rows import written
from support.request_rows import rows

S = 10**9


def test_the_rate_of_n_arrivals_has_one_gap_less():
    assert arrival_rate(written(rows(3, arrival_ns=[5 * S, S, 3 * S]))) == 0.5


@pytest.mark.parametrize("last", [-40, -1, 0, 34, 35, 36, 40])
def test_a_search_tries_no_step_beyond_its_range(last):
    tried = []
    found = highest_attaining(lambda step: tried.append(step) or step <= last, -40, 40)
    assert (found.attains, found.fails) == (last, last + 1 if last < 40 else None)
    assert min(tried) >= -40
    assert max(tried) <= 40


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


def test_counts_are_tried_only_once_all_candidates_have_ended_well():
    """One machine holds 1/s, eight hold 8/s: of 3/s the middle, four, is tried next."""
    plan = Plan("s", Study("", ""), ())

    def laid_out(settings):
        return [Cell(0, f"{n}", own) for n, own in enumerate(settings)]

    further = Further(plan, laid_out, 3.0, 1, False, {})
    cells = laid_out([{MACHINES: 1}, {MACHINES: 8}])
    ended = {
        f"{n}": CellRecord(f"{n}", "ok", {"capacity": {"machines": m, "rate_per_s": m}})
        for n, m in ((0, 1), (1, 8))
    }
    assert [(cell.index, cell.settings) for cell in further(cells, ended)] == [(2, {MACHINES: 4})]
    more = laid_out([{MACHINES: 1}, {MACHINES: 8}, {MACHINES: 9}])
    assert further(more, ended) == further(more, ended | {"2": CellRecord("2", "failed")}) == []
