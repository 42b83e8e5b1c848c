"""Events written during a run equal those that a run keeps in memory."""

from __future__ import annotations

import numpy as np
import pytest
from kvcache_sim.errors import InvariantError
from kvcache_sim.metrics.columns import EVENT_COLUMNS, OUTCOMES
from kvcache_sim.metrics.event_log import EventLog
from kvcache_sim.metrics.parts import Parts
from kvcache_sim.metrics.prefix_cache import outcomes_of
from kvcache_sim.metrics.run import CodedText

ROWS = 100_000


def fill(log: EventLog) -> EventLog:
    for row in range(ROWS):
        log.add("prefix_cache_event", OUTCOMES[row % 3], (row // 4, 0, 0, row, 7, 0, 9))
    return log


def test_rows_that_leave_and_rows_that_stay_are_all_rows():
    whole = fill(EventLog()).columns()
    left: list = []
    log = EventLog()
    log.leave_to(left.append)
    rest = fill(log).columns()
    assert len(left) > 1
    parts = Parts(tuple(EVENT_COLUMNS), lambda: iter([*left, *rest.parts()]))
    for name in EVENT_COLUMNS:
        mine, all_rows = parts[name], whole[name]
        if isinstance(all_rows, CodedText):
            assert isinstance(mine, CodedText)
            assert mine.words == all_rows.words
            mine, all_rows = mine.codes, all_rows.codes
        assert np.array_equal(mine, all_rows), name
    counted = outcomes_of(rest)
    assert {o: log.left_outcomes[o] + counted.get(o, 0) for o in OUTCOMES[:3]} == outcomes_of(whole)


def backwards(log: EventLog) -> None:
    for row in range(ROWS, 0, -1):
        log.add("prefill_start", "", (row, 0, 0, 0, 0, 0, 0))


def test_a_row_before_one_that_has_left_is_refused():
    log = EventLog()
    log.leave_to(lambda part: None)
    with pytest.raises(InvariantError, match="I5"):
        backwards(log)
