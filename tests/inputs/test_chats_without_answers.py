"""Chats without answers: refused with the command that converts them, and imported with their times."""

import json
import re
import shlex

import pytest
from kvcache_sim.cli.main import run

CHAT = {"messages": [{"role": "user", "content": "What does a radix tree store?"}]}
TIMED = {**CHAT, "timestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(("row", "verb"), [(CHAT, "convert"), (TIMED, "import"), ({"body": CHAT}, "convert")])
@pytest.mark.parametrize(
    "argv", [["simulate"], ["curve"], ["trace", "check"], ["trace", "stats"], ["trace", "tokens"]]
)
def test_chats_without_answers_name_their_line_and_the_command_that_converts_them(
    row, verb, argv, tmp_path, monkeypatch, capsys
):
    """The command of the refusal runs as printed, and its trace runs with the command printed next."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my chats.jsonl").write_text(f"\n{json.dumps(row)}\n{json.dumps(row)}\n")
    assert run([*argv, "my chats.jsonl"]) == 3
    done = capsys.readouterr()
    (line,) = (done.out + done.err).splitlines()[:1]
    assert re.match(
        r"(?:/.*)?my chats\.jsonl:2: chats \(messages\) without an answer; got prompts alone;", line
    )
    command = re.search(r"(kvsim trace .*) assumes one$", line)[1]
    assert command.startswith(f"kvsim trace {verb} ")
    assert run(shlex.split(command)[1:]) == 0
    (following,) = (said for said in capsys.readouterr().err.splitlines() if said.startswith("next: kvsim "))
    assert run([*shlex.split(following)[2:], "-o", "out", "-q"]) == 0
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["requests"]["finished"] == 2


def test_times_of_chats_are_kept_by_import_and_their_loss_is_said_elsewhere(tmp_path, capsys):
    rows = [{**TIMED, "timestamp": f"2026-01-01T00:00:0{s}Z", "max_tokens": 7} for s in (0, 4)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert run(["trace", "import", str(tmp_path / "log.jsonl")]) == 0
    taken = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["timestamp"], row["output_length"]) for row in taken] == [(0, 7), (4000, 7)]
    assert run(["trace", "stats", str(tmp_path / "log.jsonl")]) == 0
    assert "times are not read (kvsim trace import keeps them)" in " ".join(capsys.readouterr().err.split())
