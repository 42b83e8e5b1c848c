"""Fairness: figures of each tenant, Jain's index, and the largest lead in service over another."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.metrics.tenants import summarize_tenants
from support.examples import examples


def rows_of(*own):
    """Return rows of (arrival, finish, tokens)."""
    arrival, finish, tokens = (np.array(column, np.int64) for column in zip(*own, strict=True))
    zero = np.zeros(len(own), np.int64)
    return {
        "request": np.arange(len(own)),
        "status": zero,
        "arrival_ns": arrival,
        "finish_ns": finish,
        "first_token_ns": arrival + 10**6,
        "input_tokens": tokens,
        "output_tokens": zero,
        "cached_prefix_length_used": tokens // 4,
    }


def test_jain_and_the_service_gap_by_hand():
    rows = rows_of((0, 10, 100), (0, 20, 300), (5, 30, 100), (0, 40, 100))
    reported = summarize_tenants(rows, np.array([0, 1, 0, 0], np.int32), ["a", "b"], [1.0, 2.0], {})[
        "tenants"
    ]
    # tokens by weight: a 300, b 150
    assert reported["jain"] == pytest.approx(450**2 / (2 * (300**2 + 150**2)))
    # a leads by 100 at 10, b by 50 at 20; then b has no request
    assert reported["service_gap_tokens"] == 100
    assert reported["by_name"]["b"] == {
        "requests": 1,
        "tokens": 300,
        "token_hit_rate": 0.25,
        "ttft_avg": 1.0,
        "ttft_p99": 1.0,
    }


_named = st.tuples(
    st.integers(0, 2),
    st.booleans(),
    *[st.integers(0, 9)] * 2,
    st.integers(1, 9),
    st.integers(0, 9),
    st.integers(0, 5),
)


@examples(60)
@given(st.lists(_named, min_size=1, max_size=12))
def test_figures_of_each_name_by_themselves(drawn):
    """Of finished requests alone; a name without one has no mean. Jain's index is that of tokens by weight."""
    number, done, arrival, ttft, prompt, answer, cached = (np.array(own) for own in zip(*drawn, strict=True))
    rows = {
        "request": np.arange(len(drawn)),
        "status": np.where(done, 0, 1),
        "arrival_ns": arrival * 10**6,
        "first_token_ns": (arrival + ttft) * 10**6,
        "finish_ns": np.where(done, 99 * 10**6, -1),
        "input_tokens": prompt,
        "output_tokens": answer,
        "cached_prefix_length_used": np.minimum(cached, prompt),
    }
    names, weights = ["a", "b", "c"], [1.0, 2.0, 4.0]
    found = summarize_tenants(
        rows, number.astype(np.int32), names, weights, {"tenants.dropped_blocks": 7, "x": 1}
    )["tenants"]
    shares = []
    for n, name in enumerate(names):
        own = [row for row in drawn if row[0] == n and row[1]]
        times, prompts = [row[3] for row in own], sum(row[4] for row in own)
        tokens = sum(row[4] + row[5] for row in own)
        shares.append(tokens / weights[n])
        assert found["by_name"][name] == {
            "requests": len(own),
            "tokens": tokens,
            "token_hit_rate": sum(min(row[6], row[4]) for row in own) / prompts if own else None,
            "ttft_avg": pytest.approx(sum(times) / len(own)) if own else None,
            "ttft_p99": pytest.approx(float(np.percentile(times, 99))) if own else None,
        }
    squares = sum(share**2 for share in shares)
    assert found["jain"] == (pytest.approx(sum(shares) ** 2 / 3 / squares) if squares else None)
    assert found["dropped_blocks"] == 7


def gap_of_pair(requests, one, other, weights):
    """Return the largest lead of one over another while both have requests, from their events alone."""
    events = [(at, 1, tenant, 0) for at, _, _, tenant in requests if tenant in (one, other)]
    events += [(end, 0, tenant, n) for _, end, n, tenant in requests if tenant in (one, other)]
    there, lead, gap = {one: 0, other: 0}, 0.0, 0.0
    for _, arrives, tenant, n in sorted(events):  # at one instant requests end before others come
        if arrives:
            lead = 0.0 if there[tenant] == 0 else lead
        elif min(there.values()) > 0:
            lead += (n if tenant == one else -n) / weights[tenant]
            gap = max(gap, abs(lead))
        there[tenant] += 1 if arrives else -1
    return gap


@examples(60)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(1, 50), st.integers(0, 2)),
        min_size=1,
        max_size=12,
    ),
    st.lists(st.sampled_from([0.5, 1.0, 4.0]), min_size=3, max_size=3),
)
def test_the_service_gap_is_the_largest_of_all_pairs(drawn, weights):
    requests = [(at, at + lasts, tokens, tenant) for at, lasts, tokens, tenant in drawn]
    tenants = np.array([tenant for *_, tenant in requests], np.int32)
    rows = rows_of(*(own[:3] for own in requests))
    found = summarize_tenants(rows, tenants, ["a", "b", "c"], weights, {})["tenants"]["service_gap_tokens"]
    pairs = itertools.combinations(range(3), 2)
    assert found == max(gap_of_pair(requests, *pair, weights) for pair in pairs)
