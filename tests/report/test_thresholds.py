"""The threshold grammar: short names, units, signs, and refusals that say what to write instead."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.metrics.names import STABLE_METRICS, resolve_metric
from support.product.reports import flatten, parse_threshold

SUMMARY = {"latency": {"ttft": {"p99": 1500.0, "p50": None}}, "cache": {"token_hit_rate": 0.25}}


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


@pytest.mark.parametrize(
    ("text", "metric", "amount", "against"),
    [
        ("ttft.p99 > 1.5s", "latency.ttft.p99", 1500.0, "limit"),
        ("ttft.p99>=250us", "latency.ttft.p99", 0.25, "limit"),
        ("ttft.p99 < -20ms", "latency.ttft.p99", -20.0, "baseline difference"),
        ("ttft.p99 == +2s ", "latency.ttft.p99", 2000.0, "baseline difference"),
        ("cpu_s > 2min", "wall.cpu_s", 120.0, "limit"),
        ("wall.cpu_s <= -1500ms", "wall.cpu_s", -1.5, "baseline difference"),
        ("peak_rss_bytes > 2KiB", "wall.peak_rss_bytes", 2048.0, "limit"),
        ("peak_rss_bytes > +1kB", "wall.peak_rss_bytes", 1000.0, "baseline difference"),
        ("peak_rss_bytes > -5%", "wall.peak_rss_bytes", -0.05, "baseline share"),
        ("hit_rate < 30%", "cache.token_hit_rate", 0.3, "limit"),
        ("hit_rate < .3", "cache.token_hit_rate", 0.3, "limit"),
        ("hit_rate < -1e-1", "cache.token_hit_rate", -0.1, "baseline difference"),
        ("requests.finished > +3", "requests.finished", 3.0, "baseline difference"),
        ("goodput < -10 %", "goodput.requests_per_s", -0.1, "baseline share"),
    ],
)
def test_an_amount_is_in_the_unit_of_its_metric(text, metric, amount, against):
    found = parse_threshold(text)
    assert (found.text, found.metric, found.against) == (text, metric, against)
    assert found.amount == pytest.approx(amount)
    assert found.needs_baseline is (against != "limit")
    base = {**SUMMARY, "wall": {"cpu_s": 8.0, "peak_rss_bytes": 4000}}
    if metric.startswith("wall"):
        value = base["wall"][metric[5:]]
        expected = {
            "limit": amount,
            "baseline share": value * (1 + amount),
            "baseline difference": value + amount,
        }
        assert found.limit(base) == pytest.approx(expected[against])


@pytest.mark.parametrize("comparison", [">", "<", ">=", "<=", "=="])
@pytest.mark.parametrize("value", [1499.0, 1500.0, 1501.0])
def test_a_comparison_is_that_of_numbers(comparison, value):
    summary = {"latency": {"ttft": {"p99": value}}}
    assert parse_threshold(f"ttft.p99 {comparison} 1500ms").holds(summary) is eval(
        f"{value} {comparison} 1500"
    )
    unmeasured = {"latency": {"ttft": {"p99": None}}}
    assert parse_threshold(f"ttft.p99 {comparison} +0%").limit(unmeasured) is None
    assert not parse_threshold(f"ttft.p99 {comparison} +0ms").holds(summary, unmeasured)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("requests.finished > 5%", "is no share"),
        ("ttft.p99 > 5%", "is no share"),
        ("ttft.p99 > 5", "time without a known unit"),
        ("peak_rss_bytes > 5", "size without a known unit"),
        ("ttft.p99 > 5s" + " " * 188, "not a threshold"),
        ("ttft.p99 => 5s", "not a threshold"),
    ],
)
def test_what_is_no_threshold_is_said(text, what):
    with pytest.raises(UsageError, match=what) as refused:
        parse_threshold(text, "HERE")
    assert refused.value.where == "HERE"
    assert parse_threshold("ttft.p99 > 5s" + " " * 187).amount == 5000.0


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
