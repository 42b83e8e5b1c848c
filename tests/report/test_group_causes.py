"""Planted causes of misses in hybrid models and on lower tiers, through the command line."""

import json
import random

import pytest
from kvcache_sim.cli.main import run as kvsim

#: A row of the trace: its ids, of 16 tokens each.
ROW = {"output_length": 8, "block_size": 16}


def written(folder, rows, gap_ms=2000):
    """Write a trace whose rows are lists of ids; a prompt has one token more where that is asked for."""
    lines = [
        ROW | {"timestamp": n * gap_ms, "input_length": 16 * len(ids), "hash_ids": ids}
        for n, ids in enumerate(rows)
    ]
    (folder / "trace.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def shared(prefix, own, count):
    """Return prompts of a shared prefix and as many ids of their own."""
    return [[*range(prefix), *range(1000 * (n + 1), 1000 * (n + 1) + own)] for n in range(count)]


def explained(folder, capsys, text, *given):
    """Return the summary of a run with causes, and its sentences by name."""
    (folder / "s.yaml").write_text(f"trace: {{path: trace.jsonl}}\n{text}")
    options = [part for one in given for part in ("--set", one)]
    run = str(folder / "run")
    argv = ["simulate", "-c", str(folder / "s.yaml"), *options, "--causes", "-o", run, "--force", "-q"]
    assert kvsim(argv) == 0
    capsys.readouterr()
    assert kvsim(["explain", run, "--format", "json"]) == 0
    topics = json.loads(capsys.readouterr().out)
    summary = json.loads((folder / "run" / "summary.json").read_text())
    return summary, {name: text for group in topics.values() for name, text in group.items()}


def tokens_by_cause(misses):
    """Return the missed tokens of each cause that has some."""
    names = ("never_seen", "diverged", "evicted", "shorter", "not_ready", "elsewhere", "not_admitted")
    names += ("window_moved_on", "no_checkpoint", "partial_block", "not_loaded")
    return {name: misses[name] for name in names if misses.get(name)}


HYBRID = """
model: qwen3-next-80b-a3b
cache: {semantics: vllm}
replica: {step_time: "linear:base=5ms,token=20us"}
tiers: {gpu: {capacity: 20000 blocks}}
"""


def test_a_shared_part_shorter_than_the_groups_block_is_no_lack_of_capacity(tmp_path, capsys):
    """200 prompts share 240 of 560 tokens; blocks have 544."""
    written(tmp_path, shared(15, 20, 200))
    summary, said = explained(tmp_path, capsys, HYBRID)
    misses = summary["misses"]
    assert tokens_by_cause(misses) == {
        "never_seen": 544,
        "diverged": 199 * 304,
        "partial_block": 199 * 240,
        "shorter": 200 * 16,
    }
    assert misses["tokens"] == 200 * 560
    assert "block of 544 tokens" in said["partial-block"]
    assert not {"evicted", "evictors"} & set(said)
    assert "544 tokens" in said["shorter"]


def test_prompts_shorter_than_the_groups_block_lie_behind_the_last_whole_one(tmp_path, capsys):
    written(tmp_path, shared(15, 20, 20))
    summary, said = explained(tmp_path, capsys, HYBRID, "model=kimi-k3")
    assert tokens_by_cause(summary["misses"]) == {"shorter": 20 * 560}
    assert "evicted" not in said


@pytest.mark.parametrize(("blocks", "cause"), [(20000, None), (20, "evicted")])
def test_whole_blocks_of_groups_are_evicted_only_for_capacity(blocks, cause, tmp_path, capsys):
    """The first prompt, of two whole blocks and a token more, comes again behind eight others."""
    first = list(range(69))
    written(tmp_path, [first, *(row for row in shared(0, 69, 8)), first])
    summary, said = explained(tmp_path, capsys, HYBRID, f"tiers.gpu.capacity={blocks} blocks")
    found = tokens_by_cause(summary["misses"])
    assert found.get("evicted", 0) == (1088 if cause else 0)
    assert ("evicted" in said) is bool(cause)
    assert sum(found.values()) == summary["misses"]["tokens"]


def test_a_replay_without_time_names_the_same_causes(tmp_path, capsys):
    written(tmp_path, shared(15, 20, 200))
    argv = ["cachesim", str(tmp_path / "trace.jsonl"), "--policy", "vllm", "--model", "qwen3-next-80b-a3b"]
    assert kvsim([*argv, "--capacity", "20000 blocks", "--format", "json"]) == 0
    misses = json.loads(capsys.readouterr().out)["misses"]
    assert misses["partial_block_tokens"] == 199 * 240
    assert misses["evicted_tokens"] == 0
    assert misses["missed_tokens"] == 200 * 560
    causes = (tokens for name, tokens in misses.items() if name.endswith("_tokens"))
    assert sum(causes) == 2 * misses["missed_tokens"]


TIERED = """
cache: {block_size: 16, kv_bytes_per_token: 32000B}
replica: {step_time: "linear:base=1ms,token=10us", max_num_seqs: 1}
tiers: {gpu: {capacity: 8 blocks}, cpu: {capacity: 100 blocks}}
"""


@pytest.mark.parametrize("seed", range(4))
def test_what_earlier_prompts_share_of_a_larger_block_is_no_new_token(seed, tmp_path, capsys):
    """Blocks of 64 tokens over ids of 16 in a cache that keeps all: the shared tokens that no whole block has."""
    draw = random.Random(seed)
    rows, seen, missed = [], set(), 0
    for number in range(30):
        before = draw.choice(rows) if rows else []
        row = [
            *before[: draw.randint(0, len(before))],
            *range(100 * number, 100 * number + draw.randint(1, 9)),
        ]
        shown = next((n for n in range(len(row)) if tuple(row[: n + 1]) not in seen), len(row))
        most = (16 * len(row) - 1) // 64 * 64
        missed += min(16 * shown, most) - min(16 * shown // 64 * 64, most)
        seen |= {tuple(row[: n + 1]) for n in range(len(row))}
        rows.append(row)
    written(tmp_path, rows)
    for policy in ("vllm", "lru"):
        argv = ["cachesim", str(tmp_path / "trace.jsonl"), "--policy", policy, "--trace-block-size", "16"]
        assert kvsim([*argv, "--block-size", "64", "--capacity", "9999", "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["misses"]["partial_block_tokens"] == missed
    larger = (
        "cache.block_size=64",
        "tiers.cpu=null",
        "tiers.gpu.capacity=9999 blocks",
        "replica.instant=true",
    )
    assert explained(tmp_path, capsys, TIERED, *larger)[0]["misses"]["partial_block"] == missed


@pytest.mark.parametrize(("shares", "in_part"), [(12, True), (20, False)])
def test_a_tier_of_chunks_cannot_keep_what_fills_none(shares, in_part, tmp_path, capsys):
    """Every third prompt begins alike, by 192 tokens or by 320, above a CPU of chunks of 256."""
    rows = [[*range(shares * (k % 3 == 0)), *range(100 * k + 100, 100 * k + 132)][:32] for k in range(30)]
    written(tmp_path, rows)
    chunked = ("cache.semantics=vllm", "tiers.gpu.capacity=40 blocks", "tiers.cpu.semantics=lmcache")
    summary, said = explained(tmp_path, capsys, TIERED, *chunked, "tiers.cpu.chunk_tokens=256")
    found = tokens_by_cause(summary["misses"])
    assert found["evicted"] == 9 * (192 if in_part else 64)
    assert "cpu cannot keep these" in said["evicted"]
    assert ("Its chunks of 256 tokens" in said.get("cpu-unused", "")) is in_part


def test_blocks_that_are_found_and_not_loaded_are_not_called_evicted(tmp_path, capsys):
    """Two prompts of seven blocks take turns on a GPU of eight: the CPU has each when it returns."""
    a, b = list(range(7)), list(range(100, 107))
    written(tmp_path, [a, b, a, b])
    summary, said = explained(tmp_path, capsys, TIERED, "fetch.policy=never")
    found = tokens_by_cause(summary["misses"])
    assert found["not_loaded"] > 0
    assert "evicted" not in found
    assert "fetch.policy" in said["not-loaded"]
    always, _ = explained(tmp_path, capsys, TIERED)
    assert "not_loaded" not in tokens_by_cause(always["misses"])
