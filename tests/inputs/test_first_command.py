"""First commands of a new user: every format without a setting, reported lengths and blocks, varied
presets."""

import json

import numpy as np
import pytest
from kvcache_sim.base.errors import TraceError, UsageError
from kvcache_sim.cli.main import run
from kvcache_sim.metrics.load_run import load_run
from kvcache_sim.scenario.load import load_scenario, scenario_from_text
from kvcache_sim.scenario.subject import subject_line
from kvcache_sim.workload.readers import ReadSettings, read_trace
from kvcache_sim.workload.readers.json_rows import fitting_block
from support.word_tokenizer import write_tokenizer


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def mooncake(block, whole_only=False, rows=6):
    made = []
    for k in range(rows):
        tokens = 1000 + 137 * k
        ids = tokens // block if whole_only else -(-tokens // block)
        made.append(
            {"timestamp": 50 * k, "input_length": tokens, "output_length": 3, "hash_ids": list(range(ids))}
        )
    return lines(made)


WEKA_ROW = {"t": 0.0, "path": "", "type": "n", "in": 200, "out": 5, "api": 2.0, "think": 0.0, "hash": "1-3"}
WEKA = {"session": "s", "models": [], "block_size": 64, "rows": [WEKA_ROW]}
SAID = [{"from": "human", "value": "why " * 100}, {"from": "gpt", "value": "so " * 40}]
CHAT = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": [{"type": "text", "text": "why " * 99}]},
    {"role": "assistant", "content": "so " * 40},
    {"role": "user", "content": "and then?"},
]
CHAINED = {"parent_chat_id": -1, "input_length": 64, "output_length": 3, "type": "text", "turn": 1}
BAILIAN = [{"chat_id": k, "timestamp": k, "hash_ids": [1, 2, 3, k + 4], **CHAINED} for k in range(3)]
SIZED = {"session_id": "a", "input_bytes": 1024, "output_bytes": 80, "hash_ids": [1, 2, 3, 4]}
LMCACHE = [{"timestamp": 9 * k, **SIZED} for k in range(3)]
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n2023-11-16 18:15:50.99,1396,109\n"
BURST = (
    'Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,"M",374,44,418,C\n'
    "45.5,M,1396,109,1505,A\n"
)
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.1,374,44\n0.25,1396.0,109\n"
#: format → (text, block, words of its warnings)
FORMATS = {
    "mooncake": (mooncake(512), 512, ""),
    "mooncake in blocks of 16": (mooncake(16), 16, "fit blocks of 16 tokens alone"),
    "bailian": (lines(BAILIAN), 16, ""),
    "lmcache": (lines(LMCACHE), 64, "estimated at 4 bytes a token"),
    "weka": (lines([WEKA]), 64, ""),
    "azure": (AZURE, 512, "hit rates need ids"),
    "burstgpt": (BURST, 512, "hit rates need ids"),
    "vidur": (VIDUR, 512, "hit rates need ids"),
    "sharegpt": (
        json.dumps([{"id": "a", "conversations": SAID}]),
        16,
        "English and code come out 10 % too long",
    ),
    "openai": (lines([{"messages": CHAT}]), 16, "estimated at 4 bytes a token"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_runs_at_the_first_command(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    text, block, said = FORMATS[name]
    (tmp_path / "t").write_text(text)
    assert run(["simulate", "t", "-o", "out", "--set", "tiers.gpu.capacity=10GiB"]) == 0
    warned = capsys.readouterr().err
    assert said in warned
    assert ("hit rates need ids" in warned) == (said == "hit rates need ids")
    stored = load_run(tmp_path / "out")
    assert f"block_size: {block}\n" in stored.scenario.split("cache:")[1]
    # the resolved scenario spells the block out, and is the same run again
    assert run(["simulate", "-c", "out/scenario.yaml", "-o", "again", "-q"]) == 0
    assert load_run(tmp_path / "again").manifest["digest"] == stored.manifest["digest"]
    assert load_run(tmp_path / "again").manifest["config_hash"] == stored.manifest["config_hash"]
    capsys.readouterr()
    assert run(["explain", "out"]) == 0
    reported = capsys.readouterr().out
    if said == "hit rates need ids":
        assert "hit rates need ids" in reported
        assert "could serve" not in reported


def test_a_block_that_is_written_stays(tmp_path):
    (tmp_path / "t").write_text(mooncake(16))
    (tmp_path / "s.yaml").write_text("trace: {path: t}\ncache: {block_size: 8}\n")
    assert load_scenario(tmp_path / "s.yaml").model.cache.block_size == 8
    (tmp_path / "s.yaml").write_text("trace: {path: t}\n")
    assert load_scenario(tmp_path / "s.yaml").model.cache.block_size == 16
    assert load_scenario(tmp_path / "s.yaml", ["trace.block_size=64"]).model.cache.block_size == 64
    generated = scenario_from_text("workload: {kind: diverse, block_size: 32}", "s", tmp_path)
    assert generated.model.cache.block_size == 32


@pytest.mark.parametrize("whole_only", [True, False])
@pytest.mark.parametrize("power", range(4, 13))
def test_the_block_is_the_one_power_of_two_that_fits(power, whole_only):
    block = 1 << power
    text = mooncake(block, whole_only).encode()
    rows = [json.loads(row) for row in text.splitlines() if json.loads(row)["hash_ids"]]
    counted = [(len(row["hash_ids"]), row["input_length"]) for row in rows]
    # by an independent rule: b fits n ids of L tokens where (n − 1)·b < L < (n + 1)·b
    fits = [
        b
        for b in (1 << k for k in range(17))
        if all((n - 1) * b < length < (n + 1) * b for n, length in counted)
    ]
    expected = 512 if 512 in fits or len(fits) != 1 else fits[0]
    assert fitting_block(text, 512) == expected
    assert block in fits


def test_several_blocks_or_none_are_todays_error(tmp_path):
    row = {"timestamp": 0, "output_length": 3}
    none = lines([{**row, "input_length": 100, "hash_ids": list(range(n))} for n in (7, 50)])
    several = lines([{**row, "input_length": 70, "hash_ids": [1, 2]}])
    for text in (none, several):
        (tmp_path / "t").write_text(text)
        with pytest.raises(TraceError, match="too many block ids"):
            read_trace(tmp_path / "t")


def test_a_tokenizer_of_the_user_counts_tokens(tmp_path):
    write_tokenizer(tmp_path / "tokenizer.json", ["why", "so"])
    for text, inputs, outputs in (
        (json.dumps([{"id": "a", "conversations": SAID}]), [100], [40]),
        (lines([{"messages": CHAT}]), [105], [40]),
        (lines([{"custom_id": "x", "body": {"messages": CHAT, "max_tokens": 77}}]), [105, 150], [40, 77]),
    ):
        (tmp_path / "t").write_text(text)
        trace = read_trace(tmp_path / "t", settings=ReadSettings(tokenizer=str(tmp_path / "tokenizer.json")))
        assert trace.input_tokens.tolist() == inputs
        assert trace.output_tokens.tolist() == outputs
        assert np.diff(trace.id_offsets).tolist() == [n // 16 for n in inputs]
        assert not any("estimated" in warning for warning in trace.warnings)
    (tmp_path / "s.yaml").write_text("trace: {path: t, tokenizer: tokenizer.json}\n")
    assert load_scenario(tmp_path / "s.yaml").model.trace.tokenizer == str(tmp_path / "tokenizer.json")
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(UsageError, match=r"no.json: not a tokenizer"):
        read_trace(tmp_path / "t", settings=ReadSettings(tokenizer=str(tmp_path / "no.json")))
    (tmp_path / "l").write_text(lines(LMCACHE))
    with pytest.raises(UsageError, match=r"trace.tokenizer: has no effect; the file has lengths"):
        read_trace(tmp_path / "l", settings=ReadSettings(tokenizer=str(tmp_path / "tokenizer.json")))


def test_session_affinity_without_sessions_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    argv = ["simulate", "t", "--set", "cluster.machines=2", "--set", "router.policy=session-affinity"]
    for text, said in ((mooncake(512), True), (lines(LMCACHE), False)):
        (tmp_path / "t").write_text(text)
        assert run([*argv, "-o", f"out-{said}"]) == 0
        warned = " ".join(capsys.readouterr().err.split())
        assert ("the requests have no sessions, so it is least-loaded here" in warned) == said


POOL = """\
workload: {kind: conversational, requests: 12}
cluster: {machines: 2}
tiers: {gpu: {capacity: 200 blocks}, cpu: {capacity: 100 blocks}}
fetch: {lookup: cluster}
channels: {nic: {bandwidth: 25GB/s, edges: [remote->cpu]}}
"""


def test_a_preset_may_be_varied_one_key_at_a_time(tmp_path):
    alone = scenario_from_text(POOL, "s", tmp_path, ["fetch.lookup=local"])
    assert [error.what for error in alone.idle] == ["channel 'nic' has no effect"]
    assert "channel 'nic' has no effect here: no machine reads from another" in alone.notes[-1]
    plain = POOL.split("fetch:")[0]
    assert alone.resolved == scenario_from_text(plain, "s", tmp_path).resolved
    one = scenario_from_text(POOL, "s", tmp_path, ["cluster.machines=1"])
    assert [error.path for error in one.idle] == [("fetch", "lookup"), ("channels", "nic", "edges", 0)]
    with pytest.raises(UsageError, match="channel 'nic' has no effect"):
        scenario_from_text(POOL.replace("lookup: cluster", "lookup: local"), "s", tmp_path)
    with pytest.raises(
        UsageError, match=r"--set fetch.lookup: fetch.lookup has no effect; there is one machine"
    ):
        scenario_from_text(plain, "s", tmp_path, ["cluster.machines=1", "fetch.lookup=cluster"])


def sweep(*grid):
    return ["sweep", "--scenario", "s.yaml", "-o", "sw", "-q", "-j", "1", "--dry-run", *grid]


def test_a_sweep_takes_what_some_cell_uses_and_refuses_what_none_does(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(POOL)
    assert run(sweep("--grid", "fetch.lookup=local,cluster")) == 0
    (tmp_path / "s.yaml").write_text(POOL.split("fetch:")[0] + "write: {policy: through}\n")
    assert run(sweep("--grid", "tiers.cpu=null,{capacity: 99 blocks}")) == 0
    capsys.readouterr()
    assert run(sweep("--grid", "tiers.cpu=null", "--grid", "seed=1,2")) == 2
    assert "write.policy has no effect; no machine has a tier below the gpu" in capsys.readouterr().err


def test_capacities_are_reported_in_blocks_tokens_and_bytes(tmp_path):
    tiers = "tiers: {gpu: {capacity: 300 blocks}, cpu: {capacity: 2GiB}, disk: {capacity: unbounded}}\n"
    scenario = scenario_from_text(
        "workload: {kind: diverse}\ncache: {block_size: 64}\n" + tiers, "s", tmp_path
    )
    size = scenario.settings.cache.kv_bytes_per_token  # 128 KiB: a block is 8 MiB
    assert size == 131_072
    assert (
        "tiers gpu 300 blocks (19,200 tokens, 2.3 GiB), cpu 2GiB (16,384 tokens, 256 blocks), disk unbounded"
        in subject_line(scenario.resolved)
    )
