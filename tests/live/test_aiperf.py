"""AIPerf against `kvsim serve`: what it counts and times is what the simulated cluster did.

Runs where `KVSIM_AIPERF` names its program, on a machine that does nothing else:
``python -m venv aiperf; aiperf/bin/pip install aiperf; KVSIM_AIPERF=aiperf/bin/aiperf pytest -s
tests/live/test_aiperf.py``
"""

import json
import os
import random
import subprocess
from pathlib import Path

import pytest
from live_server import live_server

AIPERF = os.environ.get("KVSIM_AIPERF", "")
pytestmark = pytest.mark.skipif(not AIPERF, reason="KVSIM_AIPERF names no aiperf program")

REQUESTS = 200
BLOCK = 512
_NAME, _COMMIT = "local/words", "0" * 40


def a_tokenizer(directory: Path) -> Path:
    """Write a tokenizer of some hundred words as a snapshot of a hub, which needs no network; return it."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    index = directory / "hub" / f"models--{_NAME.replace('/', '--')}"
    snapshot = index / "snapshots" / _COMMIT
    snapshot.mkdir(parents=True)
    (index / "refs").mkdir()
    (index / "refs" / "main").write_text(_COMMIT)
    characters = [*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,;:!?'-<>|_/"]
    words = [a + b for a in "bcdfghjklmnprstvw" for b in "aeiou"]
    vocabulary = {word: n for n, word in enumerate(["<unk>", "<s>", "</s>", *characters, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.save(str(snapshot / "tokenizer.json"))
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "model_max_length": 10**6}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **special}
    (snapshot / "tokenizer_config.json").write_text(json.dumps(config))
    (snapshot / "config.json").write_text('{"model_type": "llama"}')
    return snapshot


def a_trace(path: Path) -> list[int]:
    """Write a Mooncake trace; return the tokens of its answers. Last, partial blocks have ids of their
    own."""
    draw, at, id, rows = random.Random(1), 0.0, 10, []
    for _ in range(REQUESTS):
        at += draw.expovariate(8 / 1000)
        own = draw.randrange(1, 6)
        ids = [draw.randrange(3), *range(id, id + own)]
        id += own
        length = BLOCK * (len(ids) - 1) + draw.randrange(1, BLOCK)
        row = {"timestamp": int(at), "input_length": length, "output_length": draw.randrange(5, 120)}
        rows.append({**row, "hash_ids": ids})
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return [row["output_length"] for row in rows]


def test_aiperf_sees_what_the_simulated_cluster_did(tmp_path):
    snapshot, trace = a_tokenizer(tmp_path), tmp_path / "trace.jsonl"
    answers = a_trace(trace)
    options = ("-c", "preset:one-gpu", "--tokenizer", str(snapshot), "--served-model-name", "m")
    with live_server(tmp_path / "run", *options) as server:
        command = f"{AIPERF} profile --model m --url {server.url} --endpoint-type chat --streaming"
        command += f" --input-file {trace} --custom-dataset-type mooncake_trace --fixed-schedule"
        command += f" --fixed-schedule-auto-offset --tokenizer {_NAME} --ui none --no-gpu-telemetry"
        command += f" --no-server-metrics --artifact-dir {tmp_path / 'out'} --random-seed 1"
        environment = {**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
        environment.pop("PYTHONPATH", None)
        subprocess.run(command.split(), check=True, timeout=300, env=environment, capture_output=True)
        run = server.stop()
    seen = json.loads((tmp_path / "out" / "profile_export_aiperf.json").read_text())
    summary = json.loads((run / "summary.json").read_text())
    own = {name: summary["latency"][name]["avg"] for name in ("ttft", "tpot")}
    ttft, itl = seen["time_to_first_token"]["avg"], seen["inter_token_latency"]["avg"]
    print(
        f"TTFT {ttft:.2f} ms seen, {own['ttft']:.2f} simulated; between tokens {itl:.3f}, {own['tpot']:.3f}"
    )
    assert seen["request_count"]["avg"] == summary["requests"]["finished"] == REQUESTS
    assert seen["output_sequence_length"]["sum"] == summary["tokens"]["output"] == sum(answers)
    assert abs(ttft - own["ttft"]) <= 5 + 0.02 * own["ttft"]
    assert abs(itl - own["tpot"]) <= 0.5 + 0.02 * own["tpot"]
