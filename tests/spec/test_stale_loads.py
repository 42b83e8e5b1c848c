"""Loads that are polled: what a router saw against what the finished run says, and the order that staleness gives."""

from dataclasses import replace

import numpy as np
import pytest
from kvcache_sim.metrics.summary import summarize
from kvcache_sim.serving.router import prefix
from kvcache_sim.serving.router.prefix import LeastLoaded
from kvcache_sim.serving.settings import RouterSettings
from kvcache_sim.simulation import simulate
from support.clusters import BLOCK, cluster
from support.lookahead import assert_same_by_the_clock
from support.pools import pools, requests
from support.small_traces import trace_of
from support.traces import random_trace

MS = 1_000_000


def closed_loop(seed, think_ms):
    """Turns of a session that follow each other, some at once, between requests that come by the clock."""
    trace = random_trace(seed)
    think = np.where((trace.turn > 0) & (trace.session % 2 == 0), think_ms * MS, -1)
    return replace(trace, think_ns=think.astype(np.int64))


TRACES = {
    "open": lambda: random_trace(6),
    "closed": lambda: closed_loop(6, 700),
    "closed at once": lambda: closed_loop(6, 0),
}


@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize("interval_ms", [1, 50, 640, 1700])
def test_a_router_sees_what_was_true_at_the_last_poll(name, interval_ms, monkeypatch):
    """Requests open, and prompt tokens without a first token, just before the last multiple of the interval."""
    seen, interval = [], interval_ms * MS

    class Spy(LeastLoaded):
        def choose(self, sequence):
            loads = self._view.loads
            seen.append((self._view.now_ns(), loads.requests(), loads.queued_tokens()))
            return super().choose(sequence)

    monkeypatch.setattr(prefix, "LeastLoaded", Spy)
    router = RouterSettings("least-loaded", view_interval_ns=interval)
    rows = simulate(replace(cluster((90, 60), 3), router=router), TRACES[name]()).requests
    at = {
        key: np.asarray(rows[key])
        for key in ("machine", "arrival_ns", "first_token_ns", "finish_ns", "input_tokens")
    }
    assert len(seen) == len(at["machine"])
    changed = set()
    for now, opened, queued in seen:
        poll = now // interval * interval
        before = at["arrival_ns"] < poll
        for machine in range(3):
            here = before & (at["machine"] == machine)
            assert opened[machine] == np.sum(here & (at["finish_ns"] >= poll))
            assert queued[machine] == at["input_tokens"][here & (at["first_token_ns"] >= poll)].sum()
        changed.add(tuple(opened))
    assert len(changed) > 1


@pytest.mark.parametrize(
    "policy", ["least-loaded", "longest-prefix", "prefill-cost", "power-of-two", "weighted", "vllm-dp"]
)
@pytest.mark.parametrize("interval_ms", [50, 1700])
def test_lookahead_changes_no_poll(policy, interval_ms):
    router = RouterSettings(policy, view_interval_ns=interval_ms * MS)
    assert_same_by_the_clock(replace(cluster((90, 60), 3), router=router), random_trace(6))


@pytest.mark.parametrize("semantics", ["vllm", "sglang"])
def test_engines_of_other_semantics_are_polled_too(semantics):
    settings = replace(cluster((160,), 3), router=RouterSettings("weighted", view_interval_ns=1700 * MS))
    settings = replace(settings, cache=replace(settings.cache, semantics=semantics))
    run = assert_same_by_the_clock(settings, random_trace(6))
    assert (
        run.digest_results
        != simulate(replace(settings, router=RouterSettings("weighted")), random_trace(6)).digest_results
    )


def test_requests_of_one_interval_follow_the_same_report():
    """At the poll at 100 ms machine 1 alone is idle: all go there until the next one, at 200 ms."""
    trace = requests(
        (95, 2000, 1),
        (101, 400, 1),
        (102, 400, 1),
        (130, 400, 1),
        (199, 400, 1),
        (200, 400, 1),
        (201, 400, 1),
    )

    def machines(interval_ms):
        router = RouterSettings("least-loaded", view_interval_ns=interval_ms * MS)
        return simulate(replace(pools("bb"), router=router), trace).requests["machine"].tolist()

    assert machines(100) == [0, 1, 1, 1, 1, 0, 0]  # from 200 ms on both are idle: the one chosen less often
    assert machines(0) == [0, 1, 1, 0, 0, 1, 0]


def test_below_the_knee_stale_loads_are_worse_than_none_and_live_ones_better():
    """Half of what eight machines can do, Poisson: the least loaded of a second ago is the fullest by now."""
    draw = np.random.default_rng(5)
    arrivals = np.cumsum(draw.exponential(1 / 340, 3000)) * 1e9
    trace = trace_of([[k] for k in range(3000)], 512, arrival_ns=arrivals.astype(np.int64))

    def mean_ttft_ms(policy, interval_ms=0):
        settings = replace(
            cluster((2000,), 8), router=RouterSettings(policy, view_interval_ns=interval_ms * MS)
        )
        return summarize(simulate(settings, trace), BLOCK)["latency"]["ttft"]["avg"]

    live, fresh, blind = (
        mean_ttft_ms("least-loaded"),
        mean_ttft_ms("least-loaded", 10),
        mean_ttft_ms("random"),
    )
    assert live < fresh < blind
    for policy in ("least-loaded", "prefill-cost"):
        assert mean_ttft_ms(policy, 1000) > 3 * blind
    two = mean_ttft_ms("power-of-two", 1000)  # two draws herd less than all eight
    assert live < mean_ttft_ms("power-of-two") < blind < two < mean_ttft_ms("least-loaded", 1000)
