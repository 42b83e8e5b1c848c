"""The numbered invariants of docs/invariants.md that a run's own tables show: each is raised, each is held."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import InvariantError
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.metrics.columns import REQUEST_COLUMNS
from kvcache_sim.metrics.run import Run
from kvcache_sim.simulation import RunOptions, Simulation
from kvcache_sim.simulation.end_checks import check_rows
from kvcache_sim.spec.channels import FifoChannel
from support.conserved import check_never_idle
from support.examples import examples
from support.pools import pools, requests
from support.product.machines import check_channels
from support.tiered_scenario import BASE, run_with

EVER = (0, 1 << 62)
WORKLOADS = {
    "seed": st.integers(0, 1 << 30),
    "workload.requests": st.integers(5, 40),
    "workload.arrivals.rate_per_s": st.sampled_from([1, 6, 30, 200]),
    "tiers.gpu.capacity": st.sampled_from(["150 blocks", "300 blocks", "2000 blocks"]),
}
SCENARIOS = st.fixed_dictionaries(
    {
        **WORKLOADS,
        "replica.max_num_seqs": st.sampled_from([1, 3, 16]),
        "replica.max_num_batched_tokens": st.sampled_from([256, 2048, 16384]),
        "cache.touch": st.sampled_from(["release", "admission"]),
    }
)
GPU_ALONE = BASE.replace("cluster: {machines: 2}\n", "").replace(
    "tiers: {gpu: {capacity: 400 blocks}, cpu: {capacity: 500 blocks}, disk: {capacity: 9000 blocks}}\n", ""
)


def ran(scenario: dict[str, object], *more: str, **options: object) -> Run:
    return run_with(*(f"{key}={value}" for key, value in scenario.items()), *more, text=GPU_ALONE, **options)


@examples(40)
@given(SCENARIOS)
def test_no_engine_is_idle_while_a_request_waits(scenario):
    """I12: on a machine whose only tier is the GPU, a request in the queue waits for a step that runs."""
    check_never_idle(ran(scenario, record_window_ns=EVER))


@examples(40)
@given(st.fixed_dictionaries(WORKLOADS))
def test_a_bounded_cache_hits_no_more_than_an_unbounded_one(scenario):
    """I10: one request after another, so that both see the same order of admissions."""
    instant = {**scenario, "replica.instant": "true", "cache.semantics": "tree", "replica.max_num_seqs": 256}
    bounded, unbounded = ran(instant), ran({**instant, "tiers.gpu.capacity": "unbounded"})
    served = bounded.requests["status"] == 0
    hit, most = (run.requests["cached_prefix_length_used"] for run in (bounded, unbounded))
    assert (hit[served] <= most[served]).all()


def rows(**changed: int) -> dict[str, np.ndarray]:
    """Return a table of one finished request: a second in the queue, a second of prefill, then an answer."""
    row = {name: np.zeros(1, column.dtype) for name, column in REQUEST_COLUMNS.items()}
    values = {
        "queue_ns": 10,
        "prefill_ns": 10,
        "first_token_ns": 20,
        "finish_ns": 30,
        "input_tokens": 8,
        "num_tokens_actually_prefilled": 8,
        **changed,
    }
    return row | {name: np.array([value], REQUEST_COLUMNS[name].dtype) for name, value in values.items()}


@pytest.mark.parametrize(
    ("changed", "number"),
    [
        ({"queue_ns": -10, "prefill_ns": 30}, "I6"),
        ({"finish_ns": 19}, "I6"),
        ({"fetch_ns": 5, "queue_ns": 5}, "I8"),
        ({"first_token_ns": 21}, "I8"),
        ({"input_tokens": 9}, "I8"),
        ({"cached_prefix_length_used": 4, "input_tokens": 12}, "I8"),
    ],
)
def test_a_row_that_breaks_an_invariant_is_refused_by_its_number(changed, number):
    check_rows(rows())
    with pytest.raises(InvariantError, match=f"^{number}: "):
        check_rows(rows(**changed))


def two_jobs():
    """Return a run's machines without edges, and a channel of a byte a ns with two jobs of 40 bytes queued at 10 ns."""
    simulation = Simulation(pools("b"), requests((0, 16, 1)), RunOptions())
    simulation.run()
    [replica] = simulation.replicas
    replica.moved.edge_bytes["gpu->cpu"] = 80
    link = FifoChannel(ChannelSettings("link", bandwidth_bytes_per_s=10**9))
    for _ in range(2):
        link.transmit((40, 0, 1), 10)
    return [replica], link


@pytest.mark.parametrize(("sent_bytes", "busy_ns", "number"), [(-1, 0, "I9"), (0, 11, "I5")])
def test_bytes_on_edges_and_channels_are_the_same(sent_bytes, busy_ns, number):
    """The second job is sent from 50 to 90 ns: 60 ns after the start 50 of the first 60 ns were busy."""
    replicas, link = two_jobs()
    check_channels(replicas, None, {"link": link}, 60)
    link.sent_bytes += sent_bytes
    link.busy_ns += busy_ns
    with pytest.raises(InvariantError, match=number):
        check_channels(replicas, None, {"link": link}, 60)


def test_jobs_of_a_lost_machine_that_are_queued_at_the_end_are_no_busy_time():
    replicas, link = two_jobs()
    assert link.busy_ns == 80, "booked when queued"
    check_channels(replicas, None, {"link": link}, 60)
