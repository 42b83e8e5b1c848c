"""Semantics 6, rule by rule: which of the five events a request logs, in which order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.serving.outcome import Outcome, decide_outcome, found

CONVERSATIONAL, CROSS, MISS, FULL, UNEXPECTED = Outcome


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
        # a prompt not above the total goes on to the cross check
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
    assert list(decide_outcome(prompt, session, run)) == events


@given(
    prompt=st.integers(1, 1000),
    session=st.none() | st.integers(0, 1200),
    missed=st.integers(0, 1000),
)
def test_exactly_one_thing_was_found_and_lengths_add_up(prompt, session, missed):
    run = max(prompt - missed, 0)
    events = decide_outcome(prompt, session, run)
    types = [event.event_type for event in events]
    assert len(set(types)) == len(types) <= 3
    assert sum(t in (CONVERSATIONAL, CROSS, MISS) for t in types) == 1
    assert (found(events) is MISS) == (run == 0)
    for event in events:
        assert event.cached_prefix_length + event.num_tokens_prefilled_after_cache_check == prompt
        if event.event_type in (CONVERSATIONAL, CROSS, FULL):
            assert event.cached_prefix_length == run > 0
    assert (FULL in types) == (missed == 0)
