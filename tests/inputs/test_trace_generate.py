"""``kvsim trace generate``: what lands on disk, on stdout, and what is refused."""

import hashlib
import json
import os
import subprocess
import sys

import pytest
from kvcache_sim.cli import main

KVSIM = [sys.executable, "-m", "kvcache_sim"]


def kvsim(*arguments, **more):
    return subprocess.run([*KVSIM, *arguments], capture_output=True, text=True, check=False, **more)


def test_rows_are_pure_on_stdout_and_the_same_everywhere(tmp_path):
    digests = set()
    for hash_seed, directory in (("0", "a"), ("1", "b")):
        (tmp_path / directory).mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = kvsim(
            "trace",
            "generate",
            "rag",
            "--requests",
            "1500",
            "--seed",
            "7",
            cwd=tmp_path / directory,
            env=environment,
        )
        assert done.returncode == 0
        assert done.stderr == ""
        assert len([json.loads(line) for line in done.stdout.splitlines()]) == 1500
        digests.add(hashlib.sha256(done.stdout.encode()).hexdigest())
    assert len(digests) == 1


def test_a_file_is_whole_or_not_there_and_never_replaced_unasked(tmp_path, capsys):
    out = tmp_path / "w.jsonl"
    arguments = [
        "trace",
        "generate",
        "conversational",
        "--requests",
        "20",
        "--set",
        "arrivals.rate_per_s=3",
        "--set",
        "think_time=2s",
        "--set",
        "block_size=16",
        "-o",
        str(out),
    ]
    assert main.run(arguments) == 0
    assert "--set trace.block_size=16" in capsys.readouterr().err
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 20
    assert rows[-1]["session_id"]
    assert main.run(arguments) == 6
    assert "--force replaces it" in capsys.readouterr().err
    assert main.run([*arguments, "--force"]) == 0
    assert main.run([*arguments[:-1], str(tmp_path / "none" / "x.jsonl")]) == 7
    assert [path.name for path in tmp_path.iterdir()] == ["w.jsonl"]


def test_the_ratio_reached_is_printed_on_stderr(capsys):
    assert (
        main.run(["trace", "generate", "few-shot", "--set", "target_hit_ratio=0.5", "--set", "block_size=16"])
        == 0
    )
    captured = capsys.readouterr()
    reported = float(captured.err.removeprefix("target hit ratio 0.5: reached ").split()[0])
    assert reported == pytest.approx(0.5, abs=0.01)
    assert len(captured.out.splitlines()) == 1000
