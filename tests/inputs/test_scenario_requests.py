"""A scenario's requests: the trace it names, what is said of it, and the scenario that a server takes without it."""

import json

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.main import run
from kvcache_sim.scenario.load import load_served, scenario_from_text
from kvcache_sim.scenario.requests import read_requests

PROMPTS = (10, 64, 65, 90)


def requests_of(folder, settings: str = "", **members):
    """Return the requests of a trace in blocks of 48 tokens, read under settings."""
    rows = []
    for number, tokens in enumerate(PROMPTS):
        ids = [*range(100 * number, 100 * number - (-tokens // 48))]
        row = {"timestamp": 1000 * number, "input_length": tokens, "output_length": 3, "hash_ids": ids}
        rows.append(row | {name: values[number] for name, values in members.items()})
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = "trace: {path: t.jsonl, block_size: 48}\ncache: {block_size: 16}\n"
    return read_requests(scenario_from_text(text, "s", folder, filter(None, settings.split("; "))))


@pytest.mark.parametrize(
    ("settings", "too_long"),
    [
        ("tiers.gpu.capacity=4 blocks", 2),
        ("tiers.gpu.capacity=5 blocks", 1),
        ("tiers.gpu.capacity=6 blocks", 0),
        ("tiers.gpu.capacity=unbounded", 0),
        ("tiers.gpu.capacity=4 blocks; replica.instant=true", 2),
        ("tiers.gpu.capacity=4 blocks; replica.instant=true; replica.max_model_len=68", 1),
        ("tiers.gpu.capacity=4 blocks; replica.max_model_len=64", 0),
        ("cluster.machines=2; tiers.gpu.capacity=5 blocks; machines[0].tiers.gpu.capacity=4 blocks", 2),
        ("cluster.machines=2; tiers.gpu.capacity=5 blocks; machines[0].tiers.gpu.capacity=unbounded", 1),
    ],
)
def test_prompts_within_the_context_that_no_gpu_holds_are_counted(tmp_path, settings, too_long):
    said = [own for own in requests_of(tmp_path, settings).warnings if "they are rejected there" in own]
    assert [own.split(" ")[0] for own in said] == [str(too_long)] * bool(too_long)


def test_blocks_of_the_cache_divide_those_of_the_trace_or_are_several_of_them(tmp_path):
    for size in (16, 24, 48, 96):
        assert len(requests_of(tmp_path, f"cache.block_size={size}")) == len(PROMPTS)
    for size in (32, 72):
        with pytest.raises(UsageError, match=f"got {size}; expected a divisor or a multiple of 48"):
            requests_of(tmp_path, f"cache.block_size={size}")


def test_several_ids_are_one_block_of_a_cache_with_larger_blocks(tmp_path):
    prompts = [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5, 6, 7, 8], [0, 1, 2, 9]]
    rows = [
        {"timestamp": 1000 * k, "input_length": 16 * len(ids) + 5, "output_length": 4, "hash_ids": ids}
        for k, ids in enumerate(prompts)
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    blocks = ["--set", "cache.block_size=64", "--set", "tiers.gpu.capacity=9 blocks", "--quiet"]
    blocks += ["--set", "trace.block_size=16"]
    assert run(["simulate", str(tmp_path / "t.jsonl"), "-o", str(tmp_path / "run"), *blocks]) == 0
    # the first 64 tokens are a block that the second prompt finds; the third shares 48 of them
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["tokens"]["cached"] == 64
    assert "4 ids of 16 tokens are one block of the cache" in (tmp_path / "run" / "run.json").read_text()
    assert run(["reproduce", str(tmp_path / "run")]) == 0


def test_routing_by_session_without_sessions_is_said(tmp_path):
    fleet = "cluster.machines=2; router.policy="
    for policy, members, said in (
        ("session-affinity", {}, 1),
        ("least-loaded", {}, 0),
        ("session-affinity", {"session_id": "abab"}, 0),
    ):
        warnings = requests_of(tmp_path, fleet + policy, **members).warnings
        assert sum("have no sessions" in own for own in warnings) == said


def test_answers_are_as_long_as_the_scenario_says(tmp_path):
    assert requests_of(tmp_path, "workload.output_tokens=9").output_tokens.tolist() == [9] * 4


def test_a_server_has_its_scenario_without_its_requests(tmp_path):
    """Block ids of arrivals are of the cache's blocks, whatever the file's trace has."""
    arrivals, file, generated = (tmp_path / name for name in ("arrivals.jsonl", "s.yaml", "g.yaml"))
    file.write_text(
        "name: own\ntrace: {path: none, block_size: 4}\nmeasure: {from: 1s}\ncache: {block_size: 32}\n"
    )
    generated.write_text("workload: {kind: conversational, block_size: 64}\n")
    for path, name, size, more in (
        (file, "own", 32, []),
        (None, None, 16, []),
        (generated, None, 64, []),
        (generated, None, 4, ["trace.block_size=4", "workload.block_size=null"]),
        (file, "x", 8, ["name=x", "cache.block_size=8"]),
    ):
        found = load_served(path, more, arrivals)
        trace = found.resolved["trace"]
        assert (trace["path"], trace["format"], trace["block_size"]) == (str(arrivals), "mooncake", size)
        assert name in (found.model.name, None)
        assert found.model.cache.block_size == size
        assert found.resolved.get("measure", {}).get("from") != "1s"
