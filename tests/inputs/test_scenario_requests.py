"""A scenario's requests: the trace it names, what is said of it, and the scenario that a server takes without it."""

import json

import pytest
from kvcache_sim.base.errors import UsageError
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


def test_blocks_of_the_cache_divide_those_of_the_trace(tmp_path):
    for size in (16, 24, 48):
        assert len(requests_of(tmp_path, f"cache.block_size={size}")) == len(PROMPTS)
    for size in (32, 96):
        with pytest.raises(UsageError, match=f"got {size}; expected a divisor of 48"):
            requests_of(tmp_path, f"cache.block_size={size}")


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
