"""Every command of README and ``docs/`` runs, with small stand-ins for the files and runs it names."""

import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import page_commands
import pytest
from kvcache_sim.cli import VERBS
from kvcache_sim.cli.main import run as kvsim
from page_commands import ROOT, blocks_of, commands_in
from standins import write_standins

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
#: Pages whose commands other tests run, in an order of their own.
ELSEWHERE = {page.name for page in page_commands.SHOWN} - {"README.md"}


@pytest.fixture(scope="module")
def standins(tmp_path_factory) -> Path:
    """Return a folder with what the pages' commands name."""
    return write_standins(tmp_path_factory.mktemp("standins"))


def page_commands_of(page: Path) -> list[str]:
    return [command for block in blocks_of(page.read_text()) for command in commands_in(block)]


@pytest.mark.parametrize("page", [p for p in PAGES if p.name not in ELSEWHERE], ids=lambda page: page.name)
def test_every_command_of_a_page_runs(page, standins, tmp_path, monkeypatch, capsys):
    shutil.copytree(standins, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    failed = []
    for command in page_commands_of(page):
        if "aiconfigurator:" in command and find_spec("aiconfigurator_core") is None:
            continue  # an extra that not every Python has a wheel of
        code, _ = page_commands.run(command.replace("…", "trace.jsonl"))
        if code:
            failed.append((command, code, capsys.readouterr().err[-300:]))
    assert not failed


@pytest.mark.parametrize("page", page_commands.SHOWN, ids=lambda page: page.name)
def test_a_page_shows_what_its_commands_print(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    assert page_commands.written_anew(text) == text


def test_the_code_of_the_page_on_traces_runs():
    text = (ROOT / "docs" / "how-to" / "traces-and-workloads.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert blocks
    for block in blocks:
        exec(block, {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_sentences_name_verbs_and_options_that_exist(page, capsys):
    """Text in backticks may be notation (``list|show``): its verb and its options exist all the same."""
    reported = re.findall(r"`kvsim ([a-z-]+)([^`]*)`", page.read_text())
    for verb, rest in reported:
        assert verb in VERBS, verb
        options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest))
        if not options:
            continue
        sub = re.match(r" ([a-z-]+)\b", rest)
        capsys.readouterr()
        has_verbs = verb in ("trace", "models", "calibrate", "policies", "step-times", "releases")
        kvsim([verb, *([sub[1]] if sub and has_verbs else []), "--help"])
        shown = capsys.readouterr().out
        assert not [o for o in options if o not in shown], (verb, rest)
