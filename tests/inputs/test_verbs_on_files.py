"""Verbs on real files: what each prints, writes and ends with, as a person sees it on 80 columns."""

import json
import re
import shlex
from pathlib import Path

import pytest
from kvcache_sim.cli.main import run

LOGS = Path(__file__).parents[1] / "logs"
ROW = {"timestamp": 0, "input_length": 40, "output_length": 2, "hash_ids": [1, 2, 3]}
#: Two sessions that share a first block, one bad row in ``bad.jsonl``, and no ids in ``lengths.csv``.
ROWS = [
    ROW | {"session_id": "a", "priority": 2},
    ROW | {"timestamp": 1000.5, "hash_ids": [1, 4, 5], "session_id": "b"},
    {"delay": 500, "input_length": 60, "output_length": 3, "hash_ids": [1, 2, 7, 6], "session_id": "a"},
    ROW | {"timestamp": 2500, "input_length": 16, "hash_ids": [1]},
    ROW | {"timestamp": 4000, "input_length": 7, "hash_ids": [9]},
]
BAD = [ROWS[0] | {"kind": [1]}, {"timestamp": 5000}]
TRACE_VERBS = """
    trace head t.jsonl -n 2
    trace slice t.jsonl --from 1s --to 3s
    trace scale t.jsonl --speed 3/2
    trace sample t.jsonl --fraction 0.5 --seed 4
    trace anonymise t.jsonl
    trace rechunk t.jsonl --to 8
    trace repeat t.jsonl -n 2 --gap 1s
    trace merge t.jsonl u.jsonl
    trace convert t.jsonl
    trace convert lengths.csv --fill-ids
    trace convert lengths.csv -o converted.jsonl
    trace convert lengths.csv -o converted.jsonl
    trace convert lengths.csv -o converted.jsonl --force
    trace convert bad.jsonl --on-bad-row skip
    trace convert bad.jsonl
    trace convert bad.jsonl -o half-written.jsonl
    trace stats no.jsonl
    trace convert turned.jsonl --time-order sort
    trace convert turned.jsonl
    trace convert chats.jsonl --bytes-per-token 2 --answer-tokens 7 --trace-block-size 4
    trace merge t.jsonl -
    trace merge - -
    trace import t.jsonl
    trace import vllm.log --salt-file salt --block-size 32
    trace import vllm.log --salt-file salt -o imported.jsonl
    trace import openai.jsonl --from openai --salt-file salt --bytes-per-token 3 --answer-tokens 7
    trace import chats.jsonl --from vllm
    trace stats t.jsonl --picture p.svg
    trace check t.jsonl
    trace check bad.jsonl
    trace check bad.jsonl --format json
    trace check empty.jsonl
    trace tokens t.jsonl --seed 3
    """
REPLAYS = """
    cachesim t.jsonl --capacity 2
    cachesim t.jsonl --capacity 2 --policy lru --policy vllm --policy belady
    cachesim t.jsonl --capacity 4 --whole --policy vllm --reuse-outputs --requests r.csv
    cachesim - --capacity 4 --policy belady
    cachesim t.jsonl --capacity 4 --requests r.csv --policy lru --policy lfu
    cachesim t.jsonl --capacity 4 --force
    curve t.jsonl
    curve t.jsonl --capacity 3 --given 4 --last-partial keep --every-capacity
    curve t.jsonl --policy lfu --by-session
    curve t.jsonl --sample 0.5 --seed 3
    curve - --memory 1GiB
    curve t.jsonl --seed 3
    curve t.jsonl --memory 1GiB --sample 0.5
    curve t.jsonl --memory 1GiB --policy lfu
    curve t.jsonl --memory 1MiB
    curve t.jsonl --model gpt-oss-20b --capacity 90
    curve t.jsonl --model gpt-oss-20b --policy lfu
    """
CATALOGUES = """
    policies list
    policies new my-own -o .
    policies new my-own -o .
    policies new my-own -o . --force
    policies new my-own -o none
    policies check my_own.py:MyOwn --seed 5 --rounds 3
    models show gpt-oss-120b --gpu h100 --tp 2 --kv-dtype fp8 --length 128000
    models show no-such-model
    gpus show h100
    channels show pcie5-x16
    help glossary eviction
    help metrics queue
    """
STARTS = """
    init --preset one-gpu
    init --preset one-gpu --from 'vllm serve x'
    init --flags s.yaml --preset one-gpu
    init --from 'vllm serve meta-llama/Llama-3.1-8B-Instruct -tp 2 --port 8000'
    init --from 'vllm serve x' --gpu a100 --model llama-3.1-8b
    init --flags s.yaml
    init --flags s.yaml --engine sglang
    init --flags no.yaml
    """


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of small inputs, in which the verbs run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("CI", "1")
    traces = {"t": ROWS, "u": ROWS[3:], "bad": BAD, "turned": ROWS[1::-1]}
    for name, rows in traces.items():
        Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = [{"role": "user", "content": "Hello you"}, {"role": "assistant", "content": "Hi"}]
    Path("chats.jsonl").write_text(json.dumps({"messages": [*said, said[0]]}) + "\n")
    Path("lengths.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 00:00:00.5,60,9\n")
    Path("empty.jsonl").write_text("")
    Path("salt").write_text("mine")
    for name in ("vllm.log", "openai.jsonl"):
        Path(name).write_bytes((LOGS / name).read_bytes())
    Path("s.yaml").write_text(
        "model: llama-3.1-8b\ntiers: {gpu: {capacity: 4000 blocks}, cpu: {capacity: 64GB}}\n"
        "write: {policy: through}\nworkload: {kind: conversational}\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    "lines", [TRACE_VERBS, REPLAYS, CATALOGUES, STARTS], ids=["traces", "replays", "catalogues", "starts"]
)
def test_what_a_person_sees(lines, folder, capsys, snapshot):
    found = []
    for line in filter(None, map(str.strip, lines.splitlines())):
        code = run(shlex.split(line))
        printed = capsys.readouterr()
        found.append(f"$ kvsim {line}\n{printed.out}{printed.err}({code})\n")
    found += [f"{path.name}: {path.read_text()}" for path in sorted(folder.glob("[cir]*d.jsonl"))]
    found.append(f"files: {' '.join(sorted(path.name for path in folder.iterdir()))}")
    shown = re.sub(r"'pid': \d+", "'pid': …", "\n".join(found))
    assert shown.replace(str(folder), "FOLDER") == snapshot
