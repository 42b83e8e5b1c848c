"""The seven figures of seed 000, section 5, on eight requests that can be counted by hand."""

import numpy as np
import pytest
from kvcache_sim.metrics.columns import OUTCOMES
from kvcache_sim.metrics.prefix_cache import PrefixCacheTotals
from kvcache_sim.metrics.run import CodedText

CONVERSATIONAL, CROSS, MISS, FULL, UNEXPECTED = range(5)

#: prompt, cached, session, turn, outcome, ttft in ms
ROWS = [
    (100, 0, 0, 0, MISS, 50),
    (180, 112, 0, 1, CONVERSATIONAL, 20),
    (260, 192, 0, 2, CONVERSATIONAL, 22),
    (90, 64, 0, 3, CROSS, 10),  # after UNEXPECTED
    (96, 96, -1, 0, CROSS, 8),  # and FULL
    (15, 0, 1, 0, MISS, 5),  # less than a block
    (40, 0, 1, 1, MISS, 30),
    (70, 0, -1, 0, MISS, 40),
]
EVENTS = [MISS, CONVERSATIONAL, CONVERSATIONAL, UNEXPECTED, CROSS, CROSS, FULL, MISS, MISS, MISS]


def figures_of(admitted, kinds, details):
    totals = PrefixCacheTotals(16)
    totals.add(admitted)
    return totals.figures({"kind": kinds, "detail": details})


@pytest.fixture
def figures():
    prompt, cached, session, turn, outcome, ttft = (np.asarray(column) for column in zip(*ROWS, strict=True))
    admitted = {
        "input_tokens": prompt,
        "cached_prefix_length_used": cached,
        "num_tokens_actually_prefilled": prompt - cached,
        "session": session,
        "turn": turn,
        "outcome": outcome,
        "arrival_ns": np.full(len(ROWS), 7),
        "first_token_ns": 7 + ttft * 10**6,
    }
    words = ("arrive", "prefix_cache_event")
    kinds = CodedText(np.asarray([0, *[1] * len(EVENTS)], np.int32), words)
    order = ("", *OUTCOMES[::-1])
    details = CodedText(np.asarray([0, *[order.index(OUTCOMES[e]) for e in EVENTS]], np.int32), order)
    return figures_of(admitted, kinds, details)


def test_rates_and_what_they_are_shares_of(figures):
    assert figures["eligible"] == 7
    assert figures["conversational_turns"] == 4
    assert figures["overall_hit_rate"] == 4 / 7
    assert figures["conversational_hit_rate"] == 2 / 4
    assert figures["cross_request_hit_rate"] == 2 / 5


def test_tokens_and_ttft(figures):
    cached = 112 + 192 + 64 + 96
    prompts = sum(row[0] for row in ROWS)
    assert figures["avg_cached_prefix_length_on_hit"] == cached / 4
    assert figures["avg_tokens_prefilled"] == (prompts - cached) / 8
    assert figures["prefill_ratio"] == (prompts - cached) / prompts
    assert figures["ttft_hit_vs_miss"]["hit"]["p50"] == 15
    assert figures["ttft_hit_vs_miss"]["miss"]["p50"] == 35
    assert figures["ttft_hit_vs_miss"]["sentence"] == (
        "4 requests hit, in full or in part, 4 missed; 55 % of prefill was saved"
    )


def test_the_five_events_are_counted(figures):
    assert figures["events"] == {
        "CONVERSATIONAL_HIT": 2,
        "CROSS_REQUEST_HIT": 2,
        "MISS_FULL": 4,
        "FULL_HIT_NO_PREFILL_NEEDED": 1,
        "CONVERSATIONAL_MISS_UNEXPECTED_PROMPT": 1,
    }


def test_nothing_admitted_gives_no_figures():
    none = {name: np.empty(0, np.int64) for name in (
        "input_tokens", "cached_prefix_length_used", "num_tokens_actually_prefilled", "session", "turn",
        "outcome", "arrival_ns", "first_token_ns",
    )}  # fmt: skip
    empty = CodedText(np.empty(0, np.int32), ())
    figures = figures_of(none, empty, empty)
    assert figures["overall_hit_rate"] is None
    assert figures["ttft_hit_vs_miss"]["sentence"] == "no request was admitted"
