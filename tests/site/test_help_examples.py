"""Every example in the help of every verb runs outside the checkout, and so does every command printed next."""

import contextlib
import gzip
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import kvcache_sim as kv
import page_commands
import pytest
from help_examples import examples
from kvcache_sim.cli.main import run as kvsim
from standins import SCENARIO, iterations, write_standins
from support.shared_files import ROOT
from support.word_tokenizer import write_tokenizer

LOGS = ROOT / "tests" / "logs"
#: Examples that other tests run: with the measurements of ``../shared``, or with a library that is an extra.
ELSEWHERE = {
    "kvsim calibrate shipped calibration -o sets": "calibrate/test_calibration_fit.py",
    "kvsim calibrate servers": "calibrate/test_calibration_servers.py",
    "kvsim calibrate fit kernels.csv --only gpu=RTX4090 --model llama-3.1-8b --gpu rtx4090": (
        "calibrate/test_calibration_fit.py"
    ),
    "kvsim calibrate fit kernels.csv --only tp=1 --ep 2 --dp 2 --model qwen3-30b-a3b --gpu rtx-pro-6000": (
        "calibrate/test_mixture_kernels.py"
    ),
    "kvsim calibrate fit mixture.csv --tp 2 --ep 4 --dp 2 --transfer -o tp2-ep4-dp2.toml": (
        "calibrate/test_topology_transfer.py"
    ),
}
#: Verbs that serve or follow until a signal: their examples run in a process of their own.
SERVERS = ("kvsim serve", "kvsim record", "kvsim shadow --kv-events")
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n2023-11-16 18:15:50.99,1396,109\n"
WEKA_ROW = {"t": 0.0, "path": "", "type": "n", "in": 200, "out": 5, "api": 2.0, "think": 0.0, "hash": "1-3"}
WEKA = {"session": "s", "models": [], "block_size": 64, "rows": [WEKA_ROW]}


def rows(count: int, gap_ms: int, block: int = 512, sessions: int = 20) -> str:
    """Return turns of conversations, one every ``gap_ms``, whose prompts grow by a block."""
    turns = [0] * sessions
    lines = []
    for n in range(count):
        s = n % sessions
        turns[s] = turns[s] % 6 + 1
        ids = [1000 * (s + sessions * (n // (6 * sessions))) + k for k in range(turns[s])]
        row = {"timestamp": gap_ms * n, "input_length": block * turns[s], "output_length": 8, "hash_ids": ids}
        lines.append(json.dumps({**row, "session_id": str(s), "turn": turns[s] - 1}))
    return "\n".join(lines) + "\n"


def aiperf(count: int) -> str:
    """Return the records of AIPerf's client of requests, one a second."""
    lines = []
    for n in range(count):
        values = {
            "time_to_first_token": 100.0 + n % 7,
            "request_latency": 400.0 + 3 * (n % 11),
            "output_sequence_length": 10 + n % 5,
            "input_sequence_length": 200 + 30 * (n % 13),
        }
        metrics = {name: {"value": value, "unit": "ms"} for name, value in values.items()}
        record = {"metadata": {"request_start_ns": n * 10**9}, "metrics": metrics, "error": None}
        lines.append(json.dumps(record))
    return "\n".join(lines) + "\n"


def vllm_bench(count: int) -> str:
    """Return what ``vllm bench serve --save-detailed`` writes of requests, one a second."""
    return json.dumps(
        {
            "ttfts": [0.1 + n % 7 / 1000 for n in range(count)],
            "itls": [[0.03] * (9 + n % 5) for n in range(count)],
            "input_lens": [200 + 30 * (n % 13) for n in range(count)],
            "output_lens": [10 + n % 5 for n in range(count)],
            "start_times": [1000.0 + n for n in range(count)],
            "errors": [""] * count,
        }
    )


@pytest.fixture(scope="module")
def standins(tmp_path_factory) -> Path:
    """Return a folder with the files and runs that the examples name."""
    index = write_standins(tmp_path_factory.mktemp("examples"))
    trace = rows(150, 10_000)
    for name in ("trace.jsonl", "conversation_trace.jsonl", "mine.jsonl", "chat.jsonl", "tools.jsonl"):
        (index / name).write_text(trace)
    (index / "recorded.jsonl").write_text(rows(30, 500, 16))
    (index / "mine.jsonl.gz").write_bytes(gzip.compress(trace.encode()))
    (index / "weka_agentic_dev.jsonl.gz").write_bytes(gzip.compress(json.dumps(WEKA).encode()))
    (index / "azure2023_conv.csv").write_text(AZURE)
    for name, policy in (("back", "back"), ("through", "through")):
        (index / f"{name}.yaml").write_text(f"{SCENARIO}write: {{policy: {policy}}}\n")
    (index / "my.yaml").write_text(SCENARIO.replace("requests: 60", "requests: 24"))
    (index / "llama").mkdir()
    service = (
        "services:\n  vllm:\n    command: vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 256\n"
    )
    (index / "compose.yaml").write_text(service)
    write_tokenizer(index / "llama" / "tokenizer.json", ["the", "a"])
    logs = {
        "openai.jsonl": "requests.jsonl",
        "metrics.txt": "scrapes.txt",
        "kv_events.jsonl": "capture.jsonl",
    }
    for log, name in {**logs, "vllm.log": "vllm.log"}.items():
        shutil.copy(LOGS / log, index / name)
    for name, degrees in (("degrees.csv", (1, 2, 4)), ("new.csv", (2,)), ("iterations.csv", (1,))):
        (index / name).write_text(iterations(degrees))
    (index / "profile_export.jsonl").write_text(aiperf(60))
    (index / "bench.json").write_text(vllm_bench(120))
    agents = ["trace", "import", str(LOGS / "claude_code.jsonl"), "-o", str(index / "agents.jsonl")]
    assert kvsim(agents) == 0
    _write_runs(index)
    return index


def _write_runs(index: Path) -> None:
    """Write the finished runs and the sweep's shards that examples read."""
    short = kv.generate("conversational", requests=60, arrivals={"rate_per_s": 1})
    plain = "1-small 2-large 1-without-cpu 2-with-cpu 1-main 2-change 1-run-3fa9c1 1-mine-3fa9c1"
    recorded = ["-q", "--record", "all", "-o"]
    several = ["--set", "cluster.machines=2", "--set", "replica.max_num_seqs=64"]
    with contextlib.chdir(index):
        for name in plain.split():
            kv.simulate(short, tiers={"gpu": "96 blocks"}, name="run").save(f"runs/{name}")
        (index / "long.jsonl").write_text(rows(4800, 20))
        assert kvsim(["simulate", "long.jsonl", *several, *recorded, "runs/1-quickstart-3fa9c1"]) == 0
        assert kvsim(["simulate", "-c", "preset:quickstart", *recorded, "runs/recorded"]) == 0
        for shard in "1234":
            options = ["--shard", f"{shard}/4", "-o", f"part-{shard}"]
            assert kvsim(["sweep", "-c", "sweep.yaml", "-q", *options]) == 0
        shutil.copytree("part-1", "sweeps/sizes")


def commands() -> dict[str, str]:
    """Return the examples that are commands of ``kvsim``, without the shell's own words, and the verb they explain."""
    found: dict[str, str] = {}
    for name, line in examples():
        for part in re.split(r" && |; ", re.sub(r"\s+#\s.*", "", line)):
            inner = re.sub(r'^eval "\$\((.*)\)"$', r"\1", part)
            if inner.startswith("kvsim "):
                found[inner] = name.split()[0]
    return found


VERBS = sorted(set(commands().values()))


@pytest.mark.parametrize("verb", VERBS)
def test_every_example_runs_outside_the_checkout(verb, standins, tmp_path, monkeypatch, capsys):
    """Commands that a verb's examples print as the next ones run too."""
    shutil.copytree(standins, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".config" / "fish" / "completions").mkdir(parents=True)
    failed = []
    for command, owner in commands().items():
        if owner != verb or command in ELSEWHERE:
            continue
        if "aiconfigurator:" in command and find_spec("aiconfigurator_core") is None:
            continue  # an extra that not every Python has a wheel of
        for output in re.findall(r" -o (\S+)", command):
            if Path(output).is_file():
                Path(output).unlink()
        failed += served(command) if command.startswith(SERVERS) else ran(command, capsys)
        if verb == "record":  # no client came
            shutil.copy(standins / "recorded.jsonl", tmp_path)
    assert not failed


def ran(command: str, capsys) -> list[tuple[str, int, str]]:
    """Run a command, then those that it prints as the next ones; returns the failed ones."""
    code, out = page_commands.run(command.replace("~/", f"{Path.home()}/"))
    err = capsys.readouterr().err
    if code:
        return [(command, code, err[-300:])]
    following = [words for words in next_commands(out + "\n" + err) if words[:2] != command.split()[1:3]]
    return [(" ".join(words), code, command) for words in following if (code := kvsim(words))]


def next_commands(printed: str) -> list[list[str]]:
    """Return the words after ``kvsim`` of each command that a verb recommends."""
    joined = printed.replace("\\\n", " ")
    return [shlex.split(text, comments=True) for text in re.findall(r"^next: kvsim (.*)$", joined, re.M)]


def served(command: str) -> list[tuple[str, int, str]]:
    """Start a command that runs until a signal, on free ports; stop it once it prints; returns it if it failed."""
    words = re.sub(r"(--port) \d+", r"\1 0", command).split()[1:]
    process = subprocess.Popen(
        [sys.executable, "-m", "kvcache_sim", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    first = process.stdout.readline() if process.stdout else ""
    while first and not re.search(r"http://|hit rate|TIME|time", first):
        first = process.stdout.readline() if process.stdout else ""
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    return [] if process.returncode in (0, 130) else [(command, process.returncode, first + out[-300:])]


def test_the_examples_are_those_of_the_help(capsys):
    """Every verb's help shows an example, and every one of them is found and run, or named as run elsewhere."""
    found = {name.split()[0] for name, _ in examples()}
    assert found >= {command.split()[1] for command in commands()}
    assert len(commands()) > 110
    assert all(path.is_file() for path in (ROOT / "tests" / file for file in ELSEWHERE.values()))
    assert set(ELSEWHERE) <= set(commands())
    assert kvsim(["curve", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(line in shown for name, line in examples() if name == "curve")
