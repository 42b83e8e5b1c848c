"""The router that charges loads: its times against bytes over bandwidth and steps, and the choice they decide."""

import json

import pytest
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.serving.router.prefix import PrefillTime
from kvcache_sim.simulation import simulate

BLOCK, BYTES = 16, 16 * 131_072
A, C, D, NEW = range(64), range(100, 164), range(200, 330), (900,)
#: A and C are computed, then pushed to the CPU by D, which has 130 blocks of 140; then both come again.
ROWS = [(0, A), (5000, C), (10000, D), (20000, (*A, *NEW)), (20001, (*C, *NEW))]
TEXT = """
trace: {path: rows.jsonl, block_size: 16}
cluster: {machines: 2}
router: {policy: prefill-time}
cache: {block_size: 16, cache_output: false}
tiers: {gpu: {capacity: 140 blocks}, cpu: {capacity: 1000 blocks}}
write: {policy: through}
fetch: {layer_pipelining: false}
channels: {cpu-to-gpu: {bandwidth: 1GB/s, latency: 0s}}
"""


@pytest.fixture
def seen(tmp_path, monkeypatch):
    """Return a function that runs the rows, the first three on machine 0, and returns times and choices."""

    def run(*sets):
        rows = [
            {"timestamp": at, "input_length": len(ids) * BLOCK, "output_length": 1, "hash_ids": list(ids)}
            for at, ids in ROWS
        ]
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        made = scenario_from_text(TEXT, str(tmp_path / "s.yaml"), tmp_path, sets)
        times, chosen, rule = [], [], PrefillTime.choose

        def choose(router, sequence):
            times.append(router._view.look.prefill_times(sequence))
            chosen.append(rule(router, sequence) if sequence.request >= 3 else 0)
            return chosen[-1]

        monkeypatch.setattr(PrefillTime, "choose", choose)
        simulate(made.settings, read_requests(made))
        monkeypatch.setattr(PrefillTime, "choose", rule)
        return made.settings.machines[0].step_time, times, chosen

    return run


def test_the_times_are_bytes_over_bandwidth_and_steps(seen):
    step_time, times, chosen = seen()
    whole, rest = (
        step_time.step(StepBatch(((65 * BLOCK, 0),))),
        step_time.step(StepBatch(((BLOCK, 64 * BLOCK),))),
    )
    load_ns = 64 * BYTES  # a byte a nanosecond
    assert times[0] == [step_time.step(StepBatch(((64 * BLOCK, 0),)))] * 2
    assert times[3] == [load_ns + rest, whole]
    # Ten blocks of C are still on the GPU; machine 1 computes the first of the two prompts.
    assert times[4] == [54 * BYTES + rest, whole]
    assert chosen[3:] == [1, 0 if times[4][0] < 2 * whole else 1]


@pytest.mark.parametrize(("share", "machine"), [(0.97, 0), (1.03, 1)])
def test_the_link_decides_where_load_and_compute_are_equal(seen, share, machine):
    """The bandwidth at which loading 64 blocks takes as long as computing them, a little faster and slower."""
    step_time, _, _ = seen()
    whole, rest = (
        step_time.step(StepBatch(((65 * BLOCK, 0),))),
        step_time.step(StepBatch(((BLOCK, 64 * BLOCK),))),
    )
    bandwidth = round(64 * BYTES / ((whole - rest) * share) * 1e9)
    _, times, chosen = seen(f"channels.cpu-to-gpu.bandwidth={bandwidth}B/s")
    assert times[3][0] - rest == pytest.approx((whole - rest) * share, rel=1e-6)
    assert chosen[3] == machine


def test_what_is_queued_on_the_link_is_charged(seen):
    """At 8 GB/s machine 0 loads the first prompt; a millisecond later its link is taken for the rest of that load."""
    step_time, times, chosen = seen("channels.cpu-to-gpu.bandwidth=8GB/s")
    rest = step_time.step(StepBatch(((BLOCK, 64 * BLOCK),)))
    load_ns = 64 * BYTES / 8
    assert chosen[3] == 0
    assert times[3][0] == pytest.approx(load_ns + rest, rel=1e-6)
    assert times[4][0] == pytest.approx(2 * load_ns - 1e6 + rest, rel=1e-6)


def test_a_machine_that_loads_nothing_is_charged_for_computing(seen):
    step_time, times, _ = seen("fetch.policy=never")
    assert times[3] == [step_time.step(StepBatch(((65 * BLOCK, 0),)))] * 2
