"""Timed runs over several KV cache groups: the manager's integers, invariants, closed forms, one-line
refusals."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import KvsimError
from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.metrics.cache_groups import summarize_groups
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.metrics.load_run import load_run
from kvcache_sim.metrics.run_directory import open_run_directory
from kvcache_sim.model.kv_groups import KvGroup, KvLayout
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.serving.speculation import SpeculationSettings
from kvcache_sim.simulation import RunOptions, simulate
from kvcache_sim.simulation.simulation import Simulation
from kvcache_sim.workload.trace import Trace
from support.clusters import cluster
from support.drafting import drafting
from support.examples import examples
from support.group_runs import crowded, groups, layouts_of, replicas, settings_of
from support.product.reports import FinishedRun, miss_causes, reuse_of
from support.product.scenarios import store
from support.recorded import recorded
from support.shared_files import shared
from support.small_traces import trace_of
from support.traces import random_trace

#: With every check after every step, and with lookahead.
OPTIONS = (RunOptions(check="full"), RunOptions())


caches = st.builds(
    CacheSettings,
    enabled=st.sampled_from([True, True, True, False]),
    cache_output=st.booleans(),
    full_hit=st.sampled_from(["prefill-remainder", "skip-prefill"]),
    lookup_ns=st.sampled_from([0, 2_000_000]),
)


def test_who_waits_for_another_prompts_blocks_waits_where_blocks_are_larger_than_ids():
    """Two prompts alike come together: the second waits for the first one's blocks of two ids each."""
    full, window = KvGroup("full", 128, 0, (0,)), KvGroup("sliding", 128, 64, (0,))
    drawn = GroupSettings("drawn", KvLayout((full, window), 1, 1), 4096, None, rules="tree")
    computed = []
    for rule in ("recompute", "wait"):
        replica = ReplicaSettings(max_num_seqs=8, duplicate_prefill=rule)
        settings = settings_of(drawn, CacheSettings(), replica, 200, 1)
        settings = replace(settings, cache=replace(settings.cache, semantics="tree"))
        trace = trace_of([[f"a{k}" for k in range(20)]] * 2, 64, [1279] * 2, None, [4, 4])
        computed.append(simulate(settings, trace).requests["cached_prefix_length_used"].tolist())
    assert computed == [[0, 0], [0, 1152]]


@examples(20)
@given(
    drawn=groups(),
    cache=caches,
    replica=replicas,
    blocks=st.sampled_from([60, 200, 900]),
    machines=st.sampled_from([1, 1, 2]),
    seed=st.integers(1, 9),
)
def test_drawn_runs_keep_every_invariant(drawn, cache, replica, blocks, machines, seed):
    """Check that a run with every check and record equals a run with lookahead and without them."""
    settings = settings_of(drawn, cache, replica, blocks, machines)
    trace = (crowded if seed % 2 else random_trace)(seed, requests=40, sessions=7)
    simulation, checked = recorded(settings, trace)
    assert all(isinstance(r, NativeReplica) for r in simulation.replicas)
    run = simulate(settings, trace)
    assert [run.digest_events, run.digest_results, run.counters, run.end_ns] == checked["digests"]
    counters, junctions = lost_of(run)
    names = {name.split(".")[1] for name in counters}
    assert len(names) == len(drawn.layout.groups) or not counters
    assert all(prompt > tokens >= 0 for prompt, tokens in junction_tokens(run, trace, junctions))


def junction_tokens(run, trace: Trace, junctions: dict[str, list[int]]) -> list[tuple[int, int]]:
    """Return of each junction the request's tokens, its answer too, and how far a group could have gone."""
    total = (trace.input_tokens + trace.output_tokens).tolist()
    found = zip(junctions.get("request", []), junctions.get("junction_tokens", []), strict=True)
    return [(total[request], tokens) for request, tokens in found]


def lost_of(run) -> tuple[dict[str, int], dict[str, list[int]]]:
    counters = {name: n for name, n in run.counters.items() if name.startswith("groups.")}
    return counters, {name: values.tolist() for name, values in run.junctions.items()}


def test_runs_of_every_kind_of_group_hit_evict_and_preempt():
    """Check that the drawn runs above are hard enough: each kind hits, and blocks run out."""
    trace = crowded(3, requests=120)
    for kind, reach in (("sliding", 48), ("chunked", 64), ("linear", 0)):
        drawn = layouts_of(kind, reach)
        settings = settings_of(drawn, CacheSettings(), ReplicaSettings(max_num_seqs=8), 90, 1)
        run = simulate(settings, trace, options=RunOptions(check="full"))
        assert run.requests["cached_prefix_length_used"].sum() > 0, kind
        assert run.counters["evictions.gpu"] > 0, kind
        assert run.requests["preemptions"].sum() > 0, kind


def test_a_window_beyond_every_prompt_hits_what_full_attention_hits_without_a_bound():
    trace = random_trace(5)
    long = settings_of(layouts_of("sliding", 1 << 20), CacheSettings(), ReplicaSettings(512, 8), 60_000, 1)
    full = replace(cluster((60_000,)), cache=CacheSettings(block_size_tokens=16, semantics="vllm"))
    short = settings_of(layouts_of("sliding", 40), CacheSettings(), ReplicaSettings(512, 8), 60_000, 1)
    hits = [simulate(s, trace).requests["cached_prefix_length_used"] for s in (long, full, short)]
    assert (hits[0] == hits[1]).all()
    assert hits[0].sum() > 0
    assert hits[2].sum() <= hits[0].sum()


@pytest.mark.parametrize("model", ["gpt-oss-120b", "qwen3-next-80b-a3b", "gemma-3-27b", "llama-4-scout"])
def test_an_instant_run_gives_the_managers_integers(model, tmp_path, capsys):
    trace = tmp_path / "head.jsonl"
    lines = shared("traces/conversation_trace.jsonl").read_text().splitlines(keepends=True)
    trace.write_text("".join(lines[:500]))

    def answer(*command: str) -> dict:
        assert kvsim([*command, "--format", "json"]) == 0
        return json.loads(capsys.readouterr().out)

    sets = [f"model={model}", "replica.instant=true", "tiers.gpu.capacity=4000 blocks"]
    run = ["simulate", str(trace), *(part for s in sets for part in ("--set", s))]
    summary = answer(*run, "--quiet", "-o", str(tmp_path / "run"))
    replay = ["cachesim", str(trace), "--policy", "vllm", "--model", model, "--capacity", "4000"]
    row = answer(
        *replay, "--block-size", "512", "--outputs", "computed", "--max-num-batched-tokens", "1048576"
    )
    assert summary["tokens"]["cached"] == row["hit_tokens"] > 0
    assert summary["cache"]["evictions"]["gpu"] == row["evictions"] > 0


BASE = """
workload: {kind: conversational, requests: 20}
model: gpt-oss-120b
cache: {semantics: vllm, block_size: 64}
tiers: {gpu: {capacity: 4GiB}}
"""


def test_an_interval_needs_windows_or_states():
    overrides = ["cache.retention_interval=1024", "model=llama-3-8b"]
    with pytest.raises(KvsimError, match="all layers of llama-3-8b keep every block"):
        scenario_from_text(BASE, "s.yaml", Path.cwd(), overrides)


def test_a_pool_of_one_request_and_two_states_serves_every_request():
    trace = random_trace(4, requests=30)
    drawn = replace(layouts_of("linear", 0), max_num_batched_tokens=64)
    longest = int((trace.input_tokens + trace.output_tokens).max()) // 16 + 1
    settings = settings_of(drawn, CacheSettings(), ReplicaSettings(max_num_seqs=4), longest + 2, 1)
    run = Simulation(settings, trace, RunOptions(check="full")).run()
    assert run.counters["evictions.gpu"] > 0
    assert set(run.requests["status"]) == {STATUSES.index("finished")}


def drafted(drawn: GroupSettings, rates: tuple[float, ...], blocks: int):
    """Settings with drafts of these acceptances; no rates: none."""
    speculation = SpeculationSettings(rates, key=7) if rates else None
    return drafting(
        settings_of(drawn, CacheSettings(), ReplicaSettings(max_num_seqs=8), blocks, 1), speculation
    )


@examples(4)
@given(
    kind=st.sampled_from(["sliding", "chunked"]),
    rates=st.sampled_from([(0.9, 0.5), (1.0, 1.0, 1.0), (0.0,)]),
    blocks=st.sampled_from([100, 300, 2000]),
    seed=st.integers(1, 9),
)
def test_drafts_in_groups_are_one_story_and_cost_no_token(kind, rates, blocks, seed):
    trace = crowded(seed, requests=12, sessions=3)
    settings = drafted(layouts_of(kind, 48), rates, blocks)
    runs = [simulate(settings, trace, options=o) for o in OPTIONS]
    assert len({run.digest_results for run in runs}) == 1
    without = simulate(drafted(layouts_of(kind, 48), (), blocks), trace)
    served = runs[0].requests["status"] == STATUSES.index("finished")
    # a request that fits to the token leaves no block for its drafts
    assert (without.requests["status"][served] == STATUSES.index("finished")).all()
    assert blocks < 2000 or served.all()
    assert (runs[0].requests["output_tokens"][served] == without.requests["output_tokens"][served]).all()
    if not any(rates):
        assert runs[0].counters["speculation.accepted.0"] == 0
    elif blocks == 2000:
        assert runs[0].requests["finish_ns"].sum() < without.requests["finish_ns"].sum()


def test_drafts_in_one_group_of_full_attention_are_those_without_groups():
    trace = random_trace(3, requests=40)
    one = GroupSettings("one", KvLayout((KvGroup("full", 16, 0, (0,)),), 1, 1), 512)
    with_groups = drafted(one, (0.9, 0.5), 60_000)
    plain = replace(with_groups, cache=replace(with_groups.cache, groups=None))
    window = drafted(layouts_of("sliding", 1 << 20, None), (0.9, 0.5), 120_000)
    runs = [simulate(settings, trace) for settings in (with_groups, plain, window)]
    for column in ("first_token_ns", "finish_ns", "cached_prefix_length_used"):
        assert (runs[0].requests[column] == runs[1].requests[column]).all(), column
        assert (runs[2].requests[column] == runs[1].requests[column]).all(), column
    reported = [{k: v for k, v in run.counters.items() if k.startswith("speculation")} for run in runs]
    assert reported[0] == reported[1] == reported[2]


@pytest.mark.parametrize(("kind", "cause"), [("sliding", "window_moved_on"), ("linear", "no_checkpoint")])
def test_tokens_a_group_did_not_keep_are_reported_by_cause_and_by_group(kind, cause):
    """20 blocks; then 12 of them and others: full attention could continue from 192 tokens, the other group
    kept none.

    The third prompt parts there too, and by then what the second one kept at the junction serves it.
    """
    first = [f"a{k}" for k in range(20)]
    prompts = [
        first,
        [*first[:12], *(f"b{k}" for k in range(8))],
        [*first[:12], *(f"c{k}" for k in range(8))],
    ]
    trace = trace_of(prompts, 16, [320] * 3, None, [2] * 3)
    trace = replace(trace, arrival_ns=np.arange(3, dtype=np.int64) * 10**12)
    drawn = layouts_of(kind, 40 if kind == "sliding" else 0, 0)
    settings = settings_of(drawn, CacheSettings(), ReplicaSettings(max_num_seqs=4), 500, 1)
    run = simulate(settings, trace, options=RunOptions(check="full"))
    assert run.requests["cached_prefix_length_used"].tolist() == [0, 0, 192]
    missed = miss_causes(run.requests, trace, 16, True, run.junctions)
    reported = {name: values.tolist() for name, values in missed.items() if name != "evicted_idle_ns"}
    assert reported.pop(f"miss_{cause}_tokens") == [0, 192, 0]
    assert reported.pop("miss_diverged_tokens") == [0, 112, 112]
    assert reported.pop("miss_never_seen_tokens") == [304, 0, 0]
    assert reported.pop("miss_shorter_tokens") == [16, 16, 16]
    assert not any(map(any, reported.values()))
    groups = summarize_groups(run.counters)["cache_groups"]
    assert [own["lost_not_kept_tokens"] for own in groups.values()] == [0, 192]
    assert [own["lost_evicted_tokens"] for own in groups.values()] == [0, 0]
    assert list(groups) == [group.name for group in drawn.layout.groups]


def test_groups_of_one_kind_have_distinct_names():
    window = KvGroup("sliding", 16, 40, (1,))
    layout = KvLayout((window, KvGroup("full", 16, 0, (0,)), window, window), 1, 1)
    drawn = GroupSettings("four groups", layout, 512)
    settings = settings_of(drawn, CacheSettings(), ReplicaSettings(max_num_seqs=4), 900, 1)
    groups = summarize_groups(simulate(settings, random_trace(2, requests=20)).counters)["cache_groups"]
    assert list(groups) == ["swa40", "full", "swa40-2", "swa40-3"]
    assert groups["swa40"] == groups["swa40-2"] != groups["full"]


def test_explain_reads_miss_causes_with_and_without_the_option(tmp_path):
    """``kvsim explain`` reads what groups did not keep from the run, whether causes were counted or not."""
    scenario = scenario_from_text(BASE, "s.yaml", tmp_path, ["workload.requests=120", "cache.block_size=16"])
    reported = []
    for causes in (True, False):
        with open_run_directory(tmp_path / f"run{causes}", force=False) as directory:
            done = execute(scenario, read_requests(scenario), RunOptions(causes=causes), None, directory)
            store(done, directory, ["kvsim"])
        run = FinishedRun(load_run(tmp_path / f"run{causes}"), "", done.trace)
        reported.append({name: values.tolist() for name, values in reuse_of(run).missed.items()})
    assert reported[0] == reported[1]
    assert sum(reported[0]["window_moved_on"]) > 0


def test_a_size_is_blocks_of_the_groups():
    settings = scenario_from_text(BASE, "s.yaml", Path.cwd()).settings
    assert settings.cache.groups is not None
    assert [g.name for g in settings.cache.groups.layout.groups] == ["swa128", "full"]
    # 18 layers of 8 heads of 64, keys and values of 2 bytes: one group's page for 64 tokens
    assert settings.cache.block_bytes == 18 * 2 * 8 * 64 * 2 * 64
    assert settings.machines[0].tiers[0].capacity_blocks == (4 << 30) // settings.cache.block_bytes
