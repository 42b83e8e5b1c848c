"""Occupancy of tiers: blocks held, cached, in flight and free sum to the capacity, as vLLM counts use."""

import kvcache_sim
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

BLOCK, CAPACITY = 16, 5_000
#: Twelve prompts of 389 blocks and a token: with their answers of 14 tokens each takes 390 blocks.
TWELVE = {
    "timestamp": [0] * 12,
    "input_length": [389 * BLOCK + 1] * 12,
    "output_length": [14] * 12,
    "hash_ids": [[390 * r + k for k in range(390)] for r in range(12)],
}
SCENARIO = {
    "replica": {
        "step_time": "linear:base=50ms,token=1us",
        "max_num_batched_tokens": 100_000,
        "max_num_seqs": 12,
    },
    "cache": {"block_size": BLOCK},
    "tiers": {"gpu": {"capacity": f"{CAPACITY} blocks"}},
}


def samples(run, name):
    series = run.series.to_pydict()
    chosen = [k for k, own in enumerate(series["name"]) if own == name]
    return np.array([series["value"][k] for k in chosen])


def states(run, tier):
    return {state: samples(run, f"{tier}.{state}") for state in ("held", "cached", "in_flight", "free")}


@pytest.mark.parametrize(
    ("more", "engine"),
    [
        ({}, "native"),
        ({}, "spec"),
        ({"cache.semantics": "vllm"}, "native"),
        ({"cache.semantics": "sglang"}, "native"),
    ],
)
def test_twelve_running_requests_of_390_blocks_hold_4680(more, engine):
    options = kvcache_sim.RunOptions(engine=engine)
    trace = kvcache_sim.make_trace(TWELVE, block_size=BLOCK)
    run = kvcache_sim.simulate(trace, SCENARIO, options=options, **more)
    found = states(run, "gpu")
    assert found["held"].max() == 12 * 390 == 4_680
    at = int(found["held"].argmax())
    assert samples(run, "running")[at] == 12
    assert (found["cached"][at], found["free"][at]) == (0, CAPACITY - 4_680)
    assert (sum(found.values()) == CAPACITY).all()


def cpu(semantics: str, **more: str) -> dict[str, object]:
    """Return settings of a CPU tier below vLLM's pool, or SGLang's tree for HiCache."""
    engine = "sglang" if semantics == "hicache" else "vllm"
    tier = {"capacity": "300 blocks", "semantics": semantics, **more}
    return {"cache.semantics": engine, "tiers": {"cpu": tier}}


#: Stores of every kind, with tiers so small that all states occur.
STORES = {
    "tree": {"tiers": {"cpu": {"capacity": "300 blocks"}, "disk": {"capacity": "500 blocks"}}},
    "vllm": {"cache.semantics": "vllm"},
    "offload": cpu("vllm-offload"),
    "lmcache": cpu("lmcache"),
    "lmcache-server": cpu("lmcache-server", policy="arc"),
    "hicache": cpu("hicache"),
    "simplified": {"cache.accounting": "simplified"},
}


def sum_to_capacities(run, capacities):
    """The states of each tier sum to its capacity at each sample, and none is negative."""
    for tier, capacity in capacities.items():
        found = states(run, tier)
        assert (sum(found.values()) == capacity).all(), tier
        assert min(own.min() for own in found.values()) >= 0, tier


@pytest.mark.parametrize("store", STORES)
def test_the_states_sum_to_the_capacity_at_each_sample(store):
    workload = {"kind": "conversational", "requests": 120, "block_size": BLOCK}
    gpu, step_time = {"capacity": "900 blocks"}, "linear:base=20ms,token=9us"
    scenario = {"tiers": {"gpu": gpu}, "replica": {"step_time": step_time}}
    run = kvcache_sim.simulate(workload, scenario, **STORES[store])
    tiers = {"gpu": 900 * (BLOCK if store == "simplified" else 1)}
    lower = STORES[store].get("tiers", {}).items()
    tiers |= {name: int(own["capacity"].split()[0]) for name, own in lower}
    sum_to_capacities(run, tiers)
    assert all(states(run, tier)["cached"].max() > 0 for tier in tiers)
    assert states(run, "gpu")["held"].max() > 0


GROUPED = {"gpt-oss-20b": 16, "gemma-3-27b": 16, "qwen3-next-80b-a3b": 544}


@examples(12)
@given(
    model=st.sampled_from(sorted(GROUPED)),
    capacity=st.integers(300, 1500),
    max_num_seqs=st.integers(1, 24),
    kind=st.sampled_from(["conversational", "few-shot", "rag"]),
    seed=st.integers(0, 1000),
    offload=st.booleans(),
    scheduler=st.sampled_from(["kvsim", "vllm"]),
)
def test_the_states_sum_to_the_capacity_with_cache_groups(
    model, capacity, max_num_seqs, kind, seed, offload, scheduler
):
    block = GROUPED[model]
    workload = {"kind": kind, "requests": 40, "block_size": block}
    scenario = {
        "model": model,
        "seed": seed,
        "cache": {"block_size": block, "semantics": "vllm"},
        "tiers": {"gpu": {"capacity": f"{capacity} blocks"}},
        "replica": {
            "step_time": "linear:base=20ms,token=9us",
            "max_num_seqs": max_num_seqs,
            "scheduler": scheduler,
        },
    }
    offload = offload and scheduler == "kvsim"  # vLLM's own scheduler serves the GPU alone
    if offload:
        scenario["tiers"]["cpu"] = {"capacity": "300 blocks", "semantics": "vllm-offload"}
    run = kvcache_sim.simulate(workload, scenario)
    sum_to_capacities(run, {"gpu": capacity, **({"cpu": 300} if offload else {})})
    if run.summary["requests"]["finished"]:  # a small pool may reject every prompt
        assert states(run, "gpu")["held"].max() > 0
