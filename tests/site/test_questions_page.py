"""The thirteen questions of ``docs/how-to/questions.md``: each within three commands and one screen, all run."""

import re
import shlex
from pathlib import Path

import pytest
from kvcache_sim.cli import main
from page_commands import commands_in

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "questions.md").read_text()
#: Rows and columns of the screen on which what a question's commands print together is to fit.
ROWS, COLUMNS = 55, 80


def commands(text: str) -> list[list[str]]:
    """Return the commands of a question, each without the filter behind it: the whole answer is to fit."""
    return [
        shlex.split(command.partition(" | ")[0])[1:]
        for block in re.findall(r"```sh\n(.*?)```", text, re.S)
        for command in commands_in(block)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("questions")


def test_every_question_is_answered_in_three_commands_and_one_screen(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    setup, *questions = re.split(r"\n## (?=\d)", PAGE)
    assert [question.partition(".")[0] for question in questions] == [str(n) for n in range(1, 14)]
    for argv in commands(setup):
        assert main.run(argv) == 0
    for question in questions:
        asked = commands(question)
        assert 1 <= len(asked) <= 3
        printed = 0
        for argv in asked:
            capsys.readouterr()
            assert main.run([*argv, *(["-q"] if argv[0] in ("simulate", "sweep") else [])]) == 0, question
            lines = capsys.readouterr().out.splitlines()
            assert lines, argv
            assert not [line for line in lines if len(line) > COLUMNS], argv
            printed += len(lines)
        assert printed <= ROWS, (question, printed)
