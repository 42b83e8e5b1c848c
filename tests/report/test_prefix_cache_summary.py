"""The seven figures of seed 000, section 5, on eight requests that can be counted by hand."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.metrics.columns import OUTCOMES
from kvcache_sim.metrics.prefix_cache import PrefixCacheTotals, medians_of_equal_length
from kvcache_sim.metrics.prefix_entries import prefix_entries
from kvcache_sim.metrics.run import CodedText
from support.examples import examples
from support.request_rows import rows
from support.small_traces import trace_of

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
    prompt, cached, session, turn, outcome, ttft = map(np.array, zip(*ROWS, strict=True))
    tokens = {"input_tokens": prompt, "cached_prefix_length_used": cached}
    tokens["num_tokens_actually_prefilled"] = prompt - cached
    turns = {"session": session, "turn": turn, "outcome": outcome}
    admitted = rows(len(ROWS), **tokens, **turns, arrival_ns=[7] * len(ROWS), first_token_ns=7 + ttft * 10**6)
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
    empty = CodedText(np.empty(0, np.int32), ())
    figures = figures_of(rows(0), empty, empty)
    assert figures["overall_hit_rate"] is None
    assert figures["ttft_hit_vs_miss"]["sentence"] == "no request was admitted"


@examples(80)
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 1), max_size=4),
            st.booleans(),
            st.integers(0, 1),
            st.integers(0, 9),
            st.integers(0, 4),
            st.integers(0, 17),
        ),
        min_size=1,
        max_size=10,
    )
)
def test_entries_of_the_prefix_store_are_those_of_a_plain_tree(drawn):
    """A path counts up to what its machine still holds; of nested paths of equal use the longest stays."""
    trace = trace_of([ids for ids, *_ in drawn], 4)
    names = trace.block_ids.tolist()
    paths = [names[a:b] for a, b in pairwise(trace.id_offsets.tolist())]

    def users(path):
        return len(path) // 2 % 2

    def resident(machine, request):
        path = paths[request][: drawn[request][4]]
        found = []
        for k in range(1, len(path) + 1):
            if found and found[-1][1] == users(path[:k]):
                found.pop()
            found.append((4 * k, users(path[:k])))
        return found

    requests = {
        "status": [0 if row[1] else 1 for row in drawn],
        "machine": [row[2] for row in drawn],
        "finish_ns": [row[3] for row in drawn],
        "cached_prefix_length_used": [row[5] for row in drawn],
    }
    tree = {}
    for request, (_, done, machine, finish, depth, cached) in enumerate(drawn):
        path = tuple(paths[request][:depth]) if done else ()
        for k in range(1, len(path) + 1):
            own = tree.setdefault((machine, path[:k]), [users(path[:k]), -1, 0, request])
            own[1], own[2] = max(own[1], finish), own[2] + (cached >= 4 * k)
    expected = []
    for (machine, path), own in tree.items():
        longer = [
            other for (where, deeper), other in tree.items() if where == machine and deeper[:-1] == path
        ]
        if len(longer) != 1 or longer[0][:3] != own[:3]:
            expected.append((machine, 4 * len(path), path[-1], *own))
    expected.sort(key=lambda row: row[:3])
    found = prefix_entries(requests, trace, resident, 2)
    columns = ("machine", "length", "prefix_hash", "reference_count", "last_access_ns", "hits", "request")
    assert list(zip(*(found[name].tolist() for name in columns), strict=True)) == expected
    assert found["blocks"].tolist() == [row[1] // 2 for row in expected]


@pytest.mark.parametrize("missing", [0, 1])
def test_medians_are_of_the_bucket_of_lengths_that_has_most_of_both(missing):
    """1.25 to the powers 9 to 12 are 7.5, 9.3, 11.6 and 14.6: of 8 and 9, of 10 and 11, and of 12 to 14 tokens."""
    groups = [(9, 70, 29, 9), (10, 15, 15, 2), (11, 15, 15 - missing, 4), (12, 29, 70, 9)]
    columns = []
    for tokens, hits, misses, ms in groups:
        columns += [(tokens, 1, ms * 10**6)] * hits + [(tokens, 0, 3 * ms * 10**6)] * misses
    found = medians_of_equal_length(*np.array(columns).T)
    assert found == (None if missing else (10, 11, 30, 30, 3.0, 9.0))
