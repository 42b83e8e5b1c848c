"""The threshold grammar: short names, units, signs, and refusals that say what to write instead."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.errors import UsageError
from kvcache_sim.metrics.names import STABLE_METRICS, flatten, resolve_metric
from kvcache_sim.metrics.thresholds import parse_threshold

SUMMARY = {"latency": {"ttft": {"p99": 1500.0, "p50": None}}, "cache": {"token_hit_rate": 0.25}}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("ttft.p99 > 2s", False),
        ("ttft.p99 > 1.4s", True),
        ("latency.ttft.p99>=1500ms", True),
        ("ttft.p99 < 1500ms", False),
        ("hit_rate < 30%", True),
        ("token_hit_rate < 0.3", True),
        ("cache.token_hit_rate == 25%", True),
        ("ttft.p50 > 0s", False),  # never measured: satisfies nothing
    ],
)
def test_absolute_conditions(text, holds):
    assert parse_threshold(text).holds(SUMMARY) is holds


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("ttft.p99 > +5%", True),
        ("ttft.p99 > +60%", False),
        ("ttft.p99 > +499ms", True),
        ("ttft.p99 > +501ms", False),
        ("hit_rate < -10%", True),
        ("hit_rate < -0.1", False),
    ],
)
def test_conditions_measured_from_a_baseline(text, holds):
    baseline = {"latency": {"ttft": {"p99": 1000.0}}, "cache": {"token_hit_rate": 0.30}}
    threshold = parse_threshold(text)
    assert threshold.needs_baseline
    assert threshold.holds(SUMMARY, baseline) is holds
    with pytest.raises(UsageError, match="baseline"):
        threshold.holds(SUMMARY)


@given(st.sampled_from(sorted(STABLE_METRICS)))
def test_every_full_name_finds_itself(name):
    assert resolve_metric(name) == name


@pytest.mark.parametrize("value", ["", "1e400", "-1e400", "nan", "inf", "1e9999", "0x1", "1 2", "."])
def test_a_number_of_a_threshold_is_finite(value):
    with pytest.raises(UsageError, match="threshold"):
        parse_threshold(f"cache.hit_blocks > {value}")


@given(st.text(max_size=40))
def test_any_text_is_parsed_or_refused(text):
    with contextlib.suppress(UsageError):
        parse_threshold(text)


def test_flatten_keeps_the_order():
    assert list(flatten({"b": {"y": 1, "x": {"z": 2}}, "a": 3})) == ["b.y", "b.x.z", "a"]
