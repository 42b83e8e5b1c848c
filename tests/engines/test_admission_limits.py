"""Bounds of engines' schedulers on steps and on requests that come, step by step.

Steps are (prompt tokens, decodes). ``tests/engine_oracles/vllm_schedules.py`` draws the same bounds for vLLM's
own classes.
"""

import re
from dataclasses import replace

import pytest
from engine_oracles.scheduler_fields import KINDS, stored
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.metrics.summary import summarize
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.simulation import RunOptions
from kvcache_sim.simulation.simulation import Simulation
from support.clusters import cluster
from support.schedule_book import plain_table
from support.shared_files import ROOT
from support.small_traces import trace_of

BLOCK = 8


def run(requests, scheduler="vllm", is_watched=True, **settings):
    """Return steps and statuses of requests: (arrival ns, prompt tokens, answer), or with a name of the prompt."""
    made = cluster((400,))
    replica = ReplicaSettings(**({"max_num_batched_tokens": 64} | settings), scheduler=scheduler)
    machine = replace(made.machines[0], replica=replica, step_time=plain_table())
    semantics = "sglang" if scheduler == "sglang" else "vllm"
    cache = CacheSettings(block_size_tokens=BLOCK, semantics=semantics, lookup_ns=0)
    rows = [
        [f"{(*request, at)[3]}.{k}" for k in range(-(-request[1] // BLOCK))]
        for at, request in enumerate(requests)
    ]
    arrivals, prompts, answers = ([request[k] for request in requests] for k in range(3))
    trace = trace_of(rows, BLOCK, prompts, arrivals, answers)
    options = RunOptions(schedule=True, check="full" if is_watched else "cheap")
    simulation = Simulation(replace(made, machines=(machine,), cache=cache), trace, options)
    done = simulation.run()
    steps = [line[1:3] for line in simulation.replicas[0].schedule().steps]
    order = done.requests["request"].argsort()
    return steps, [STATUSES[status] for status in done.requests["status"][order]], done


#: A request that decodes five times, and one that comes in its first step.
TWO = [(0, 8, 6), (1, 8, 1)]
DECODE = (0, 1)


@pytest.mark.parametrize("interval", [1, 2, 3, 4, 9])
def test_a_prompt_waits_until_so_many_steps_after_the_last(interval):
    """The first step computes a prompt; the second prompt comes ``interval`` steps later, or when nothing decodes."""
    steps, _, _ = run(TWO, prefill_schedule_interval=interval)
    expected = [DECODE] * 5
    if interval <= 5:
        expected[interval - 1] = (8, 1)
    else:
        expected.append((8, 0))
    assert steps == [(8, 0), *expected]


def test_a_chunk_waits_as_well_as_a_prompt():
    """7 of 15 tokens fit next to a decode; the other 8 would be two steps, each an interval behind."""
    steps, _, _ = run([(0, 8, 9), (1, 15, 1)], prefill_schedule_interval=3, max_num_scheduled_tokens=8)
    assert steps == [(8, 0), DECODE, DECODE, (7, 1), DECODE, DECODE, (7, 1), DECODE, DECODE, (1, 0)]


def test_requests_that_wait_after_such_a_step_end_the_waiting():
    """Two may run: of two that wait one is admitted in the fourth step, and then no step waits."""
    three = [*TWO, (1, 8, 1)]
    steps, _, _ = run(three, prefill_schedule_interval=3, max_num_active_seqs=2)
    assert steps == [(8, 0), DECODE, DECODE, (8, 1), (8, 1), DECODE]


def test_a_prompt_with_one_token_left_does_not_wait_and_counts_as_none():
    """The last token of a prompt is never found; 9 of 10 tokens would be a block more than there is."""
    found, lacking = (0, 9, 9, "one"), (1, 9, 1, "one")
    steps, _, _ = run([found, lacking, (2, 8, 1)], prefill_schedule_interval=3)
    assert steps == [(9, 0), (1, 1), DECODE, (8, 1), *[DECODE] * 5]
    steps, _, _ = run([(0, 10, 9, "one"), (1, 10, 1, "one")], prefill_schedule_interval=3)
    assert steps[:4] == [(10, 0), DECODE, DECODE, (2, 1)]


def test_the_bound_of_one_request_is_at_least_its_share():
    """Of 64 tokens two requests may take 32 each, five 12, and seventeen 3, which is less than the bound of 4."""

    def first(requests, is_adaptive=True):
        bounds = {"long_prefill_token_threshold": 4, "long_prefill_token_threshold_adaptive": is_adaptive}
        return run([(0, 80, 1)] * requests, **bounds)[0][0][0]

    assert [first(requests) for requests in (1, 2, 5, 17)] == [64, 64, 60, 64]
    assert [first(requests, False) for requests in (1, 2, 5)] == [64, 8, 20]
    assert first(3) == 3 * 21


def test_steps_and_running_requests_have_bounds_below_those_of_the_engine():
    steps, _, _ = run([(0, 20, 1)], max_num_scheduled_tokens=8)
    assert steps == [(8, 0), (8, 0), (4, 0)]
    steps, _, _ = run([(0, 8, 2), (0, 8, 1)], max_num_active_seqs=1)
    assert steps == [(8, 0), DECODE, (8, 0)]


@pytest.mark.parametrize("is_watched", [True, False])
@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"max_num_queued_reqs": 0}, "xxxx"),
        ({"max_num_queued_reqs": 2}, "..x."),
        ({"max_num_queued_reqs": 3}, "...."),
        # prompts of 8 and 9 tokens count until their first token
        ({"max_num_queued_tokens": 0}, "xxxx"),
        ({"max_num_queued_tokens": 8}, ".xx."),
        ({"max_num_queued_tokens": 9}, "..x."),
        ({"max_num_queued_tokens": 17}, "..x."),
        ({"max_num_queued_tokens": 18}, "...."),
    ],
)
def test_a_request_is_turned_away_at_the_bound(bounds, expected, is_watched):
    """Three requests come in one step, the last when two of them are done."""
    requests = [(0, 8, 2), (1, 9, 1), (2, 8, 1), (10**9, 8, 1)]
    _, statuses, done = run(requests, is_watched=is_watched, **bounds)
    assert "".join("x" if status == "turned_away" else "." for status in statuses) == expected
    counts = summarize(done, BLOCK)["requests"]
    away = expected.count("x")
    assert (counts["turned_away"], counts["finished"], counts["aborted"]) == (away, 4 - away, 0)


@pytest.mark.parametrize("is_watched", [True, False])
@pytest.mark.parametrize(("most", "expected"), [(0, "xxxx"), (1, "..x."), (2, "....")])
def test_sglang_turns_a_request_away_when_so_many_wait(most, expected, is_watched):
    """The first runs when the others come; the second waits for its end."""
    requests = [(0, 8, 2), (1, 9, 1), (2, 8, 1), (10**9, 8, 1)]
    _, statuses, _ = run(requests, "sglang", is_watched, max_queued_requests=most)
    assert "".join("x" if status == "turned_away" else "." for status in statuses) == expected


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_settings_of_schedulers_are_keys_or_stand_on_the_page_of_boundaries(engine):
    """``make oracles`` compares the list with the wheels."""
    listed, page = stored(engine), (ROOT / "docs" / "understand" / "boundaries.md").read_text()
    keys = set(
        re.findall(r"^key: (\S+)", (ROOT / "docs" / "data" / "public-names.txt").read_text(), re.MULTILINE)
    )
    assert set(listed["simulated"].values()) <= keys
    assert [what for what in listed["left_out"].values() if what not in page] == []
    names = [name for kind in KINDS for name in listed[kind]]
    assert len(names) == len(set(names))
