"""The figures of `/metrics` and of lags by closed forms: one request, its times between tokens, and the clock."""

import re
from collections import defaultdict
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

pytest.importorskip("prometheus_client")

from kvcache_sim.extras.live import clock
from kvcache_sim.extras.live.fleet import TokenLags
from kvcache_sim.extras.live.metrics import GapHistogram, Metrics, _one_two_five
from kvcache_sim.extras.live.ticket import Ticket
from kvcache_sim.serving.router.contract import Occupancy

S = 10**9


@pytest.fixture
def own(monkeypatch) -> Metrics:
    """Return the metrics of a machine that published five running and 14 waiting requests."""
    published = Occupancy([14], [5], [0.25])
    monkeypatch.setattr("kvcache_sim.extras.live.metrics.published_by", lambda replicas: lambda: published)
    replica = SimpleNamespace(
        machine=0,
        cache=SimpleNamespace(block_size_tokens=16),
        store=SimpleNamespace(occupancy=lambda _: SimpleNamespace(capacity_blocks=100)),
    )
    return Metrics(SimpleNamespace(simulation=SimpleNamespace(replicas=[replica])), "m", 300)


def values(own: Metrics) -> dict[str, float]:
    """Return each value by its name without vLLM's prefix, of histograms the sum and the count alone."""
    lines = re.findall(r"^vllm:(\w+)({[^}]*})? (\S+)$", own.text().decode(), re.MULTILINE)
    found = {}
    for name, labels, value in lines:
        label = re.search(r'(?:source|finished_reason)="(\w+)"', labels)
        found[f"{name}:{label[1]}" if label else name] = float(value)
    return found


def test_a_request_counts_by_closed_forms(own):
    """Arrival at 1 s, 2 s with the client, 4 s queued, 1 s look-up, first token at 16 s, last of four at 22 s."""
    request = SimpleNamespace(
        machine=0, arrival_ns=S, admitted_ns=8 * S, queue_ns=4 * S, first_token_ns=16 * S,
        preemptions=2, cached_tokens_by_source=[48, 16, 0, 0],
    )  # fmt: skip
    ticket = Ticket(0, S, 100, 9, tokens_out=4, last_ns=22 * S, cached_tokens=64)
    own.closed(ticket, request, 22 * S)
    found = values(own)
    sums = {
        "time_to_first_token_seconds": 15, "e2e_request_latency_seconds": 21, "request_queue_time_seconds": 4,
        "request_inference_time_seconds": 14, "request_prefill_time_seconds": 8, "request_decode_time_seconds": 6,
        "request_time_per_output_token_seconds": 2, "request_params_n": 1, "request_num_preemptions": 2,
        "request_prompt_tokens": 100, "request_generation_tokens": 4, "request_max_num_generation_tokens": 9,
        "request_params_max_tokens": 9, "request_prefill_kv_computed_tokens": 36,
    }  # fmt: skip
    assert {name: found[f"{name}_sum"] for name in sums} == sums
    assert {found[f"{name}_count"] for name in sums} == {1}
    totals = {
        "prefix_cache_queries": 100, "prefix_cache_hits": 48, "external_prefix_cache_queries": 52,
        "external_prefix_cache_hits": 16, "num_preemptions": 2, "prompt_tokens": 100,
        "prompt_tokens_cached": 64, "generation_tokens": 4, "request_success_total:length": 1,
        "prompt_tokens_by_source_total:local_compute": 36, "prompt_tokens_by_source_total:local_cache_hit": 48,
        "prompt_tokens_by_source_total:external_kv_transfer": 16,
    }  # fmt: skip
    assert {name: found[name if "total:" in name else f"{name}_total"] for name in totals} == totals
    gauges = {"num_requests_running": 5, "num_requests_waiting": 14, "kv_cache_usage_perc": 0.25}
    assert {name: found[name] for name in gauges} == gauges


@pytest.mark.parametrize(("tokens", "per_token"), [(1, []), (2, [6]), (3, [3])])
def test_a_token_after_the_first_has_a_time(own, tokens, per_token):
    request = SimpleNamespace(
        machine=0, arrival_ns=S, admitted_ns=S, queue_ns=0, first_token_ns=16 * S, preemptions=0,
        cached_tokens_by_source=[0] * 4,
    )  # fmt: skip
    own.closed(Ticket(0, S, 7, 9, tokens_out=tokens, last_ns=22 * S), request, 22 * S)
    found, name = values(own), "request_time_per_output_token_seconds"
    assert (found[f"{name}_count"], found[f"{name}_sum"]) == (len(per_token), sum(per_token))


def test_buckets_are_vllms(own):
    """Of tokens 1, 2, 5 times powers of ten up to the context, 300 here; of seconds those of 0.33.0."""
    found = defaultdict(list)
    for name, edge in re.findall(r'^vllm:(\w+)_bucket{[^}]*le="([^"]+)"', own.text().decode(), re.MULTILINE):
        found[name].append(float(edge))
    tokens = [1, 2, 5, 10, 20, 50, 100, 200]
    spans = [0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680]
    between = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80]
    first = [
        0.001,
        0.005,
        0.01,
        0.02,
        0.04,
        0.06,
        0.08,
        0.1,
        0.25,
        0.5,
        0.75,
        1,
        2.5,
        5,
        7.5,
        10,
        20,
        40,
        80,
        160,
    ]
    of = {
        "time_to_first": [*first, 640, 2560],
        "per_output": between,
        "inter_token": between,
        "params_n": [1, 2, 5, 10, 20],
    }
    of |= {
        "preemptions": [1, 2, 3, 4, 5, 10, 20],
        "_tokens": tokens,
        "computed": tokens,
        "_time_": spans,
        "latency": spans,
    }
    assert len(found) == 15
    for name, edges in found.items():
        expected = next(own for word, own in of.items() if word in name)
        assert edges == [*expected, float("inf")], name
    assert _one_two_five(200) == tokens
    assert _one_two_five(1000)[-2:] == [500, 1000]


def test_a_request_that_no_machine_served_counts_for_the_first(own):
    request = SimpleNamespace(machine=-1, first_token_ns=-1, preemptions=0, cached_tokens_by_source=[0] * 4)
    own.closed(Ticket(0, S, 7, 9, aborted=True), request, S)
    assert values(own)["prompt_tokens_total"] == 7


def test_a_request_without_a_token_has_no_times(own):
    request = SimpleNamespace(
        machine=0, first_token_ns=-1, preemptions=0, cached_tokens_by_source=[0, 0, 0, 0]
    )
    own.closed(Ticket(0, S, 100, 9, aborted=True), request, 2 * S)
    found = values(own)
    assert (found["e2e_request_latency_seconds_count"], found["request_prompt_tokens_count"]) == (0, 1)
    assert found["request_success_total:abort"] == 1


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 7).map(lambda n: n * S // 2), st.integers(1, 4))))
def test_gaps_are_counted_up_to_and_with_each_edge(gaps):
    own = GapHistogram("gaps", "", "m", 2, (0.5, 1, 2.5))
    for gap in gaps:
        own.add(*gap)
    [family] = own.collect()
    found = {(s.name, s.labels["engine"], s.labels.get("le")): s.value for s in family.samples}
    for machine in (0, 1):
        all_of = [gap / S for at, gap, times in gaps if at == machine for _ in range(times)]
        for edge in ("0.5", "1.0", "2.5", "+Inf"):
            upto = sum(gap <= float(edge) for gap in all_of)
            assert found["gaps_bucket", str(machine), edge] == upto
        assert found["gaps_sum", str(machine), None] == sum(all_of)


@pytest.mark.parametrize("speed", [0.5, 1.0, 4.0])
def test_simulated_time_passes_at_the_speed_asked(monkeypatch, speed):
    monkeypatch.setattr(clock.time, "time", lambda: 1000.0)
    at_ns = iter((0, *[6 * S] * 3))
    own = clock.WallClock(speed, lambda: next(at_ns))
    now = 6 * S * speed
    assert own.now_ns() == now
    assert own.seconds_until(now + 8 * S) == 8 / speed
    assert own.behind_ns(now - 8 * S) == 8 * S / speed
    assert own.date_s(8 * S) == 1000 + 8 / speed


def test_a_percentile_is_no_longer_than_the_longest_lag():
    lags = TokenLags()
    lags.add(1_234_567, 3)
    assert {lags.percentile_ms(part) for part in (0.1, 0.5, 1.0)} == {1.234567}


def test_a_percentile_is_that_of_the_first_step_with_as_many_lags():
    lags = TokenLags()
    for lag_ns in (10_000, 60_000, 110_000, -5):
        lags.add(lag_ns, 1)
    assert [lags.percentile_ms(part) for part in (0.25, 0.5, 0.75, 0.76)] == [0.05, 0.05, 0.1, 0.11]
    lags.add(5 * 10**9, 1)
    assert lags.percentile_ms(1.0) == 1000.05
