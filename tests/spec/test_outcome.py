"""Semantics 6, rule by rule: which of the five events a request logs, in which order."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.engine import Engine
from kvcache_sim.metrics.columns import OUTCOMES
from kvcache_sim.spec.lookups import LookUps, SessionCacheInfo
from kvcache_sim.spec.records import Records
from kvcache_sim.spec.request import SequenceState
from support.small_traces import trace_of

NAMES = (
    *("CONVERSATIONAL_HIT", "CROSS_REQUEST_HIT", "MISS_FULL", "FULL_HIT_NO_PREFILL_NEEDED"),
    "CONVERSATIONAL_MISS_UNEXPECTED_PROMPT",
)
CONVERSATIONAL, CROSS, MISS, FULL, UNEXPECTED = map(OUTCOMES.index, NAMES)


def decided(prompt, session, run, history=-1):
    """Return the events that the specification logs at a first admission, and the outcome in the row.

    ``session``: tokens that the request's session left in the cache, None where no turn of it is known;
    ``history``: tokens of them that the prompt keeps, -1 where the trace does not say.
    """
    logged = []
    trace = trace_of([["a"]], 1024, [prompt])
    trace = replace(
        trace, session=np.zeros(1, np.int32), session_names=["s"], history_tokens=np.array([history])
    )
    records = Records(print, logged.append)
    lookups = LookUps(0, CacheSettings(block_size_tokens=16), 16, records, trace, Engine())
    if session is not None:
        lookups.sessions.complete_turn(SessionCacheInfo("s", session, 0, "0", [], 0))
    request = SequenceState(trace, 0, 0)
    lookups.first_admission(request, run, 1)
    return [(event.outcome, event.tokens, event.left_tokens) for event in logged], request.outcome


@pytest.mark.parametrize(
    ("prompt", "session", "run", "events"),
    [
        # a first turn, or no session: cross-request or nothing
        (100, None, 0, [(MISS, 0, 100)]),
        (100, None, 64, [(CROSS, 64, 36)]),
        (100, None, 96, [(CROSS, 96, 4)]),
        # a known session whose total is below the prompt
        (100, 70, 64, [(CONVERSATIONAL, 64, 36)]),
        (100, 99, 96, [(CONVERSATIONAL, 96, 4)]),
        (100, 70, 0, [(MISS, 0, 100)]),  # all of it was evicted
        # a prompt not above the total continues to the cross check
        (100, 100, 64, [(UNEXPECTED, 0, 100), (CROSS, 64, 36)]),
        (100, 300, 0, [(UNEXPECTED, 0, 100), (MISS, 0, 100)]),
        (100, 100, 96, [(UNEXPECTED, 0, 100), (CROSS, 96, 4)]),
        # skip-prefill: nothing is left
        (96, None, 96, [(CROSS, 96, 0), (FULL, 96, 0)]),
        (96, 70, 96, [(CONVERSATIONAL, 96, 0), (FULL, 96, 0)]),
        (96, 96, 96, [(UNEXPECTED, 0, 96), (CROSS, 96, 0), (FULL, 96, 0)]),
        # one token left is prefilled: no full hit
        (97, None, 96, [(CROSS, 96, 1)]),
    ],
)
def test_the_order_of_the_events(prompt, session, run, events):
    assert decided(prompt, session, run)[0] == events


@pytest.mark.parametrize(
    ("history", "run", "events"),
    [
        # a context window left 60 of the session's 300 tokens: a hit of the part that is left
        (60, 48, [(CONVERSATIONAL, 48, 52)]),
        (60, 0, [(MISS, 0, 100)]),
        (299, 96, [(CONVERSATIONAL, 96, 4)]),
        # nothing or all of it is said to be left, and yet the prompt is not longer
        (0, 48, [(UNEXPECTED, 0, 100), (CROSS, 48, 52)]),
        (300, 48, [(UNEXPECTED, 0, 100), (CROSS, 48, 52)]),
        (-1, 48, [(UNEXPECTED, 0, 100), (CROSS, 48, 52)]),
    ],
)
def test_a_turn_whose_history_was_cut_continues_its_session(history, run, events):
    assert decided(100, 300, run, history)[0] == events


@given(prompt=st.integers(1, 1000), session=st.none() | st.integers(0, 1200), missed=st.integers(0, 1000))
def test_exactly_one_thing_was_found_and_lengths_add_up(prompt, session, missed):
    run = max(prompt - missed, 0)
    events, outcome = decided(prompt, session, run)
    types = [kind for kind, _, _ in events]
    assert len(set(types)) == len(types) <= 3
    assert sum(t in (CONVERSATIONAL, CROSS, MISS) for t in types) == 1
    assert [outcome] == [kind for kind in types if kind in (CONVERSATIONAL, CROSS, MISS)]
    assert (outcome == MISS) == (run == 0)
    for kind, cached, left in events:
        assert cached + left == prompt
        if kind in (CONVERSATIONAL, CROSS, FULL):
            assert cached == run > 0
    assert (FULL in types) == (missed == 0)
