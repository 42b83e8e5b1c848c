"""Every verb into a full disk and into a pipe without a reader: the documented exit code, and one line at most."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kvcache_sim.base.errors import EXIT_IO, EXIT_OK, EXIT_USAGE
from kvcache_sim.cli import VERBS
from support.small_run import small_run

#: A line of each verb that prints its result to standard output.
PRINTING = """
    --version
    simulate small.jsonl -c small.yaml -q --format json
    init
    compare run run
    explain run
    sweep small.jsonl --grid seed=1,2 --dry-run
    sweep small.jsonl --grid seed=1 -q -j 1 -o swept
    optimize -c search.yaml --maximize hit_rate --trials 1 -j 1 -o found
    capacity --candidates search.yaml --slo ttft=2s -j 1
    reproduce run
    doctor
    cachesim small.jsonl --capacity 5
    curve small.jsonl
    policies list
    models show llama-3-8b
    gpus list
    step-times list
    channels list
    releases show vllm
    completion bash
    help metrics
    calibrate coverage
    trace stats small.jsonl
    trace convert small.jsonl
    shadow capture.jsonl
    session agents.jsonl
    """
#: Verbs that print where they listen, or which file they wrote, to standard error alone.
ELSEWHERE = {"serve", "record", "report", "timeline", "plot"}
LINES = [shlex.split(line) for line in PRINTING.splitlines() if line.strip()]
#: Verbs that take a second or more: once.
SLOW = {"simulate", "compare", "explain", "sweep", "optimize", "capacity", "reproduce"}
FILES = {
    "capture.jsonl": '[1, [["BlockStored", [1], null, [1], 16, null, "GPU"]], 0]\n',
    "search.yaml": (
        "scenario: {workload: {kind: conversational, requests: 9}}\n"
        "random: {space: {seed: {choice: [1, 2]}}, draws: 1}\n"
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("full")
    small_run(folder / "run", 20)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    shutil.copy(Path(__file__).parents[1] / "logs" / "claude_code.jsonl", folder / "agents.jsonl")
    return folder


def ended(
    folder: Path, kind: str, lines: list[list[str]], unbuffered: str, level: str = ""
) -> list[tuple[int, list[str]]]:
    """Return the exit code and the lines of standard error of each command."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("forked_commands.py"))],
        cwd=folder,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered, "PYTHONOPTIMIZE": level},
        input=json.dumps([[kind, *line] for line in lines]),
        capture_output=True,
        text=True,
        check=True,
    )
    return [(code, text.splitlines()) for code, text in json.loads(done.stdout)]


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(("kind", "said"), [("full", ["error: No space left on device"]), ("closed", [])])
def test_what_cannot_be_printed_is_one_line_and_code_7(folder, kind, said, unbuffered):
    lines = [line for line in LINES if line[0] not in SLOW or (kind, unbuffered) == ("full", "")]
    for line, (code, errors) in zip(lines, ended(folder, kind, lines, unbuffered), strict=True):
        assert (line, code) == (line, EXIT_IO)
        assert [text for text in errors if text.startswith("error") or "rror:" in text] == said, line


def test_every_verb_prints_or_is_named(folder):
    assert {line[0] for line in LINES} - {"--version"} == VERBS.keys() - ELSEWHERE


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_standard_error_leaves_the_code_of_the_verb(folder, unbuffered):
    lines = [["nosuch"], ["gpus", "show", "nosuch"], ["--version"], ["plot", "run", "waterfall", "--force"]]
    codes = [code for code, _ in ended(folder, "errors", lines, unbuffered)]
    assert codes == [EXIT_USAGE, EXIT_USAGE, EXIT_OK, EXIT_IO]
    assert ended(folder, "both", [["--version"], ["nosuch"]], unbuffered) == [(EXIT_IO, []), (EXIT_USAGE, [])]


@pytest.mark.parametrize("level", ["1", "2"])
def test_no_verb_needs_asserts_or_docstrings(folder, level):
    """Altair does need docstrings: a picture without them is refused in one line."""
    lines = [
        *(line for line in LINES if line[0] not in SLOW),
        ["simulate", "small.jsonl", "-c", "small.yaml"],
    ]
    for line, (code, errors) in zip(lines, ended(folder, "file", lines, "", level), strict=True):
        assert (line, code) == (line, EXIT_OK), errors
    drawn = ["report", "run", "-o", f"{level}.html"], ["plot", "run", "waterfall", "-o", f"{level}.svg"]
    for code, errors in ended(folder, "file", [*drawn], "", level):
        assert code == (EXIT_OK if level == "1" else EXIT_USAGE)
        assert level == "1" or [line[:46] for line in errors] == [
            "error: pictures need the docstrings of their l"
        ]
