"""SGLang's default tree with HiCache, and LMCache's tiers: every row, capacities that hold, closed forms."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from call_outcome import each_is_refused
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim import _core
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli import main
from kvcache_sim.policies.engine_modes import ENGINE_MODES, with_engines
from kvcache_sim.replay.engine_tiers import WRITE_POLICIES
from kvcache_sim.replay.request import REPLAYERS, ReplayRequest, StorageCapacity
from kvcache_sim.workload.readers import read_trace
from kvcache_sim.workload.toolbox.transforms import head
from replays import check_causes, workloads
from support.examples import examples
from support.product.machines import native_requests
from support.shared_files import ROOT, shared
from support.small_traces import trace_of

STRATEGIES = ("lru", "lfu", "fifo", "mru", "filo", "slru", "hpt", "priority", "tlru", "tlru:12:3")
CHUNK_POLICIES = ("lru", "lfu", "fifo", "mru")
#: Members of a row about its origin, which no replay can compute.
PROVENANCE = {"version", "trace", "seed"}


@cache
def conversation(requests: int):
    return head(read_trace(shared("traces/conversation_trace.jsonl")), requests)


@cache
def streams() -> dict[int, list]:
    rows = json.loads(shared("oracles/vllm_scheduler_lcg_streams.json").read_text())
    return {row["seed"]: row["requests"] for row in rows}


@cache
def stream(seed: int):
    """An adversarial stream: leading blocks of a document, then blocks of the request's own."""
    ids, times, prompts, outputs = [], [], [], []
    for i, (ms, prompt, output, document, common) in enumerate(streams()[seed]):
        ids.append(block_ids(i, prompt, document, common))
        times.append(ms * 10**6)
        prompts.append(prompt)
        outputs.append(output)
    names = list(dict.fromkeys(name for row in ids for name in row))
    return replace(trace_of(ids, 16, prompts, times, outputs), id_names=np.array(names, np.int64))


def block_ids(request: int, prompt: int, document: int, common: int) -> list[int]:
    """The ids of a request of a stream, the last one partial."""
    return [
        1000 * document + k if k < common else 1_000_000 + 1000 * request + k for k in range(-(-prompt // 16))
    ]


def rows_of(name: str) -> list[dict]:
    return json.loads(shared(f"oracles/{name}.json").read_text())


def request_of(row: dict) -> ReplayRequest:
    trace = stream(row["seed"]) if row["trace"] == "lcg" else conversation(row["n_requests"])
    if "chunk_tokens" in row:
        return ReplayRequest(trace, row["chunk_tokens"], row["cpu_chunks"], disk_blocks=row["disk_chunks"])
    page = row["page_size"]
    return ReplayRequest(
        trace,
        page,
        row["capacity_tokens"] // page,
        window=row["window"],
        outputs="computed",
        write_policy=row.get("write_policy", ""),
        host_blocks=row.get("host_capacity_tokens", 0) // page,
    )


def differences(row: dict, got: dict) -> list:
    """Return the differences; the first hits of a row may be fewer than the printed hits."""

    def same(name):
        want, have = row[name], got.get(name)
        return have[: len(want)] == want if name.startswith("first_20") else have == want

    return [(name, got.get(name), row[name]) for name in row if name not in PROVENANCE and not same(name)]


@pytest.mark.parametrize(
    ("name", "family", "count"),
    [
        ("sglang_unified_lcg", "sglang-unified", 60),
        ("sglang_unified_short", "sglang-unified", 15),
        ("sglang_unified_conversation", "sglang-unified", 18),
        ("lmcache_lcg", "lmcache", 60),
        ("lmcache_conversation", "lmcache", 10),
    ],
)
def test_every_row(name, family, count):
    rows = rows_of(name)
    assert len(rows) == count
    assert not [
        wrong
        for row in rows
        for wrong in differences(row, REPLAYERS[family](request_of(row), row["policy"].lower()))
    ]


# what holds of every stream; which figures it gives, ``test_engine_streams.py`` has from the engines


def figures(request: ReplayRequest, family: str, variant: str) -> dict:
    """Return a replay's figures, whose misses sum up and are of the causes that the prompts alone decide."""
    got = REPLAYERS[family](request, variant)
    missed, rejected = got["misses"]["missed_tokens"], got.get("rejected_prompt_tokens", 0)
    assert missed == got["queried_tokens"] - rejected - got["hit_tokens"] - got.get("loaded_tokens", 0)
    check_causes(request, got, last_may_hit=family == "lmcache")
    return got


@given(workloads(), st.sampled_from(STRATEGIES))
@examples(150)
def test_the_default_tree_keeps_its_capacity(request, strategy):
    got = figures(request, "sglang-unified", strategy)
    assert got["final_tree_tokens"] + got["final_free_tokens"] == got["capacity_tokens"]


storages = st.none() | st.builds(StorageCapacity, st.none() | st.integers(1, 60), st.integers(1, 20))


@given(
    workloads(), st.sampled_from(STRATEGIES), st.sampled_from(WRITE_POLICIES), st.integers(1, 60), storages
)
@examples(300)
def test_hicache_keeps_its_capacities(request, strategy, write_policy, host, storage):
    host_blocks = max(1, host * request.trace.block_size // request.block_size_tokens)
    request = replace(request, write_policy=write_policy, host_blocks=host_blocks, storage=storage)
    got = figures(request, "sglang-unified", strategy)
    if storage is not None:
        kept = got["storage_written_tokens"] - got["storage_evicted_tokens"]
        assert kept == got["final_storage_tokens"]
        assert storage.blocks is None or kept <= got["storage_capacity_tokens"]
    assert got["final_host_tokens"] + got["final_host_free_tokens"] == got["host_capacity_tokens"]
    assert got["final_tree_tokens"] + got["final_free_tokens"] == got["capacity_tokens"]


@given(workloads(), st.sampled_from(CHUNK_POLICIES), st.integers(0, 40))
@examples(300)
def test_lmcache_keeps_its_capacities(request, policy, disk):
    request = replace(request, window=0, outputs="prompt", disk_blocks=disk)
    got = figures(request, "lmcache", policy)
    assert got["final_cpu_chunks"] <= got["cpu_chunks"]
    assert got["final_disk_chunks"] <= got["disk_chunks"]


@given(workloads(), st.sampled_from(["lru", "arc"]), st.integers(1, 40), st.sampled_from([0, 2]))
@examples(150)
def test_loads_from_vllms_cpu_tier_take_as_many_blocks_as_computing(request, policy, cpu_blocks, threshold):
    alone = REPLAYERS["vllm"](request, "")
    request = replace(request, cpu_blocks=cpu_blocks, cpu_policy=policy, store_threshold=threshold)
    got = figures(request, "vllm", "")
    assert got["final_cpu_chunks"] == got["stored_chunks"] - got["evicted_chunks"] <= cpu_blocks
    # loaded tokens take as many blocks as computed tokens
    of_pool = [name for name in alone if name not in ("system", "misses", "requests")]
    assert {name: got[name] for name in of_pool} == {name: alone[name] for name in of_pool}


def test_a_split_inherits_its_time_of_making():
    """The third prompt splits the first: its upper part is new to the classic tree, as old as it was to
    this."""
    rows = [["a", "b"], ["c"], ["a", "x"], ["e", "f"], ["g"], ["c", "y"]]
    request = ReplayRequest(trace_of(rows, 4, [8, 4, 5, 8, 4, 5]), 4, 5)
    last = {
        family: REPLAYERS[family](request, "fifo")["hit_tokens"] for family in ("sglang", "sglang-unified")
    }
    assert last == {"sglang": 4, "sglang-unified": 8}


# what each mode equals

#: Where each mode's rows are.
ROWS = {
    "vllm": ["vllm_kvcachemanager"],
    "vllm, with groups": ["vllm_hybrid_conversation", "vllm_hybrid_lcg", "vllm_hybrid_short"],
    "vllm-offload": ["vllm_cpu_offload"],
    "sglang": ["sglang_radixcache"],
    "sglang-unified": ["sglang_unified_conversation", "sglang_unified_lcg", "sglang_unified_short"],
    "lmcache": ["lmcache_conversation", "lmcache_lcg"],
    "lmcache-server": [],
}


@pytest.mark.parametrize("mode", ENGINE_MODES, ids=lambda mode: mode.family)
def test_a_mode_counts_its_rows_and_streams(mode):
    rows = [row for name in ROWS[mode.family] for row in rows_of(name)]
    assert (mode.rows, mode.streams) == (len(rows), len({row["seed"] for row in rows if "seed" in row}))


def test_the_page_has_the_table_of_modes():
    page = (ROOT / "docs/understand/engines.md").read_text()
    assert with_engines(page) == page


def written(tmp_path, rows, **members) -> str:
    """Write rows of (ms, prompt, output, ids) as a trace of blocks of 16 tokens; return its path."""
    lines = []
    for turn, (ms, prompt, output, ids) in enumerate(rows):
        row = {"timestamp": ms, "input_length": prompt, "output_length": output, "hash_ids": ids}
        lines.append(json.dumps(row | members | ({"turn": turn} if members else {})) + "\n")
    (tmp_path / "trace.jsonl").write_text("".join(lines))
    return str(tmp_path / "trace.jsonl")


def test_rejected_prompts_are_counted_with_and_without(capsys, tmp_path):
    trace = written(tmp_path, [(0, 16, 1, [1]), (1, 64, 1, [1, 2, 3, 4]), (2, 16, 1, [1])])
    given = ["cachesim", trace, "--trace-block-size", "16", "--format", "json", "--capacity", "2"]
    assert main.run([*given, "--policy", "vllm"]) == 0
    got = json.loads(capsys.readouterr().out)
    assert (got["queried_tokens"], got["queried_tokens_not_rejected"]) == (96, 32)
    assert got["equals"] == "vLLM 0.33.0 KVCacheManager: 60 of 60 rows"


@pytest.mark.parametrize(("prompt", "warns"), [(16, False), (20, True)])
def test_a_change_that_ids_cannot_show_is_warned_of(prompt, warns, capsys, tmp_path):
    turns = [(0, prompt, 9, [1, 2][: -(-prompt // 16)]), (1, 48, 9, [1, 3, 4])]
    given = ["--trace-block-size", "16", "--policy", "vllm", "--capacity", "9", "--outputs", "all"]
    trace = written(tmp_path, turns, session_id="s")
    assert main.run(["cachesim", trace, *given, "--reuse-outputs"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert ("1 next turns continue a prompt that ends inside a block" in said) == warns


# the verb


def test_the_verb_prints_a_row_under_its_names(tmp_path, capsys):
    drawn = enumerate(streams()[2])
    rows = [(ms, n, output, block_ids(i, n, *shared)) for i, (ms, n, output, *shared) in drawn]
    given = ["cachesim", written(tmp_path, rows), "--trace-block-size", "16", "--format", "json"]
    row = rows_of("sglang_unified_lcg")[1]
    host = ["--host-capacity", f"{row['host_capacity_tokens']} tokens", "--write-policy", row["write_policy"]]
    below = ["--storage", "unbounded", "--prefetch-threshold", str(10**6)]
    capacity = ["--capacity", f"{row['capacity_tokens']} tokens", "--page-size", str(row["page_size"])]
    main.run([*given, "--policy", f"sglang-unified:{row['policy']}", *capacity, *host])
    assert not differences(row, json.loads(capsys.readouterr().out))
    main.run([*given, "--policy", f"sglang-unified:{row['policy']}", *capacity, *host, *below])
    got = json.loads(capsys.readouterr().out)
    # nothing is worth a prefetch, so all but the looks as requests come is as without; those count as uses
    assert (got["prefetched_tokens"], got["storage_written_tokens"] > 0) == (0, True)
    row = rows_of("lmcache_lcg")[1]
    chunks = ["--chunk-tokens", "16", "--cpu-chunks", str(row["cpu_chunks"])]
    policy = f"lmcache:{row['policy'].lower()}"
    main.run([*given, "--policy", policy, *chunks, "--disk-chunks", str(row["disk_chunks"])])
    assert not differences(row, json.loads(capsys.readouterr().out))


def test_other_policies_refuse_the_capacities_of_engine_tiers():
    for change, option in (
        ({"host_blocks": 4}, "--host-capacity"),
        ({"write_policy": "write_back"}, "--write-policy"),
        ({"disk_blocks": 4}, "--disk-chunks"),
        ({"storage": StorageCapacity(None)}, "--storage"),
        ({"cpu_blocks": 4}, "--cpu-chunks"),
    ):
        families = [("sglang", "lru"), ("prefix", "lru"), ("prefix", "belady")]
        for family, variant in families if "cpu_blocks" in change else [("vllm", ""), *families]:
            with pytest.raises(UsageError) as refusal:
                REPLAYERS[family](ReplayRequest(trace_of([["a"]]), 4, 9, **change), variant)
            assert refusal.value.where == option


def test_what_cannot_be_is_refused_and_never_panics():
    replays = native_requests(ReplayRequest(trace_of([["a", "b"]]), 4, 9))
    tree, chunks = _core.replay_sglang, _core.replay_lmcache
    calls = [
        lambda: tree(replays, "unified", ("best", 0, 0), 8),
        lambda: tree(replays, "unified", ("lru", 0, 0), 7),
        lambda: tree(replays, "unified", ("lru", 0, 0), 0),
        lambda: tree(replays, "unified", ("tlru", 2**64 - 1, 0), 8),
        lambda: tree(replays, "unified", ("tlru", 0, 2**64 - 1), 8),
        lambda: tree(replays, "unified", ("lru", 0, 0), 8, ("write_soon", 4)),
        lambda: tree(replays, "unified", ("lru", 0, 0), 8, ("write_back", 0)),
        lambda: tree(replays, "unified", ("lru", 0, 0), 2**63),
        lambda: tree(replays, "unified", ("lru", 0, 0), 8, ("write_back", 4), (0, 1)),
        lambda: tree(replays, "unified", ("lru", 0, 0), 8, ("write_back", 4), (None, 0)),
        lambda: tree(replays, "classic", ("priority", 0, 0), 8),
        lambda: tree(replays, "classic", ("lru", 0, 0), 7),
        lambda: tree(replays, "classic", ("lru", 0, 0), 8, ("write_back", 4)),
        lambda: tree(replays, "other", ("lru", 0, 0), 8),
        lambda: chunks(replays, "arc", 4, 0),
        lambda: chunks(replays, "lru", 0, 4),
        lambda: chunks(replays, "lru", 4, 2**64 - 1),
    ]
    each_is_refused(calls)


@pytest.mark.parametrize(
    ("step", "stored", "evicted", "refused"), [(64, 0, 0, 1), (32, 16, 6, 0), (28, 16, 6, 0)]
)
@pytest.mark.parametrize("secondary", [False, True])
def test_vllm_offers_a_prompt_step_by_step(step, stored, evicted, refused, secondary):
    """16 blocks over a tier of 10: too many at once; in two steps the second replaces six blocks of the first."""
    trace = trace_of([range(16)], 4, [64])
    request = ReplayRequest(trace, 4, 20, cpu_blocks=10, secondary=secondary, step_tokens=step)
    row = REPLAYERS["vllm"](request, "")
    assert (row["stored_chunks"], row["evicted_chunks"], row["refused_stores"]) == (stored, evicted, refused)
