"""The command line's promises: one line on stderr and a documented code, whatever goes wrong."""

import os
import re
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest
from kvcache_sim.base.errors import (
    EXIT_CODES,
    InputOutputError,
    InvariantError,
    KvsimError,
    OutputExistsError,
    TraceError,
    UsageError,
)
from kvcache_sim.cli import VERBS, main
from kvcache_sim.cli.verb import verb_app

KVSIM = [sys.executable, "-m", "kvcache_sim"]


def with_verb(monkeypatch, body):
    """Add a verb ``try`` whose command runs ``body``."""
    app = verb_app()
    app.command()(body)
    module = types.ModuleType("planted_verb")
    module.app = app
    monkeypatch.setitem(sys.modules, "planted_verb", module)
    monkeypatch.setitem(VERBS, "try", ("planted_verb", "planted"))


def raising(error):
    def body() -> None:
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (
            UsageError("no such tier", where="s.yaml:4:3", got="'hbm'"),
            2,
            "s.yaml:4:3: no such tier; got 'hbm'",
        ),
        (UsageError("trace not found: x.jsonl"), 2, "error: trace not found: x.jsonl"),
        (TraceError("unterminated JSON", where="t.jsonl:4:28"), 3, "t.jsonl:4:28: unterminated JSON"),
        (OutputExistsError("the output exists", where="out"), 6, "out: the output exists"),
        (InputOutputError("cannot write", where="out"), 7, "out: cannot write"),
        (PermissionError(13, "Permission denied", "out"), 7, "out: Permission denied"),
        (OSError(28, "No space left on device"), 7, "error: No space left on device"),
        (KeyboardInterrupt(), 130, "interrupted (SIGINT)"),
        (UsageError("a newline", got="a\nb"), 2, "error: a newline; got a\\nb"),
    ],
)
def test_an_error_is_one_line_and_a_code(monkeypatch, capsys, error, code, line):
    with_verb(monkeypatch, raising(error))
    assert main.run(["try"]) == code
    captured = capsys.readouterr()
    assert captured.err == line + "\n"
    assert captured.out == ""


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), InvariantError("I3: a held block left")])
def test_a_bug_is_one_line_with_a_bundle_and_the_command(monkeypatch, capsys, tmp_path, error):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with_verb(monkeypatch, raising(error))
    assert main.run(["try"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("internal error: ")
    assert err.count("\n") == 1
    assert err.endswith("reproduce with: kvsim try\n")
    (bundle,) = tmp_path.glob("kvsim-bug-*.txt")
    assert "Traceback" in bundle.read_text()
    assert str(bundle) in err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["hlep"], "no such verb: hlep; did you mean 'help'?"),
        (["--verbose"], "no such option: --verbose"),
        (["help", "--hlep"], "No such option: --hlep"),
        (["help", "nothng"], "no help on 'nothng'"),
    ],
)
def test_usage_errors_name_the_remedy(capsys, argv, said):
    assert main.run(argv) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_exit_codes_are_documented(capsys):
    assert main.run(["help", "exit-codes"]) == 0
    out = capsys.readouterr().out
    for code, meaning in EXIT_CODES.items():
        assert f"{code:>3}  {meaning}" in out
    family = [KvsimError, *KvsimError.__subclasses__()]
    assert {kind.exit_code for kind in family} <= set(EXIT_CODES)


def test_help_and_the_page_of_channels_have_the_same_edges(capsys):
    page = (Path(__file__).parents[2] / "docs" / "understand" / "tiers-and-channels.md").read_text()
    assert main.run(["help", "channels"]) == 0
    edge = r"(?:\d:)?[a-z]+->(?:\d:)?[a-z]+"
    reported = set(re.findall(edge, capsys.readouterr().out))
    assert {"1:cpu->0:cpu", "0:cpu->gpu", "1:gpu->0:gpu", "remote->cpu"} <= reported
    assert reported <= set(re.findall(edge, page))


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_has_help_with_an_example(capsys, verb):
    assert main.run([verb, "--help"]) == 0
    assert f"kvsim {verb}" in capsys.readouterr().out


def test_help_names_every_verb_without_importing_one():
    code = (
        "import sys; from kvcache_sim.cli import main, VERBS; main.run(['--help'])\n"
        "loaded = {*sys.modules} & {'numpy', 'typer', *(module for module, _ in VERBS.values())}\n"
        "assert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(f"\n  {verb} " in done.stdout for verb in VERBS)


def test_a_closed_pipe_is_quiet():
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [*KVSIM, "--help"], stdout=write_end, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write_end)
    assert done.returncode == 7
    assert done.stderr == ""


@pytest.mark.parametrize(
    "argv", [["simulate"], ["curve"], ["trace"], ["trace", "stats"], ["sweep", "merge"], []]
)
def test_the_short_form_of_help_is_everywhere(argv, capsys):
    assert main.run([*argv, "-h"]) == 0
    short = capsys.readouterr().out
    assert main.run([*argv, "--help"]) == 0
    assert capsys.readouterr().out == short
    assert "Usage" in short


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_unwinds_and_exits_with_its_code(tmp_path: Path, number, code):
    left = tmp_path / "left"
    script = (
        "import sys, types, time, pathlib\n"
        "from kvcache_sim.cli import main, VERBS\n"
        "from kvcache_sim.cli.verb import verb_app\n"
        "app = verb_app()\n"
        "@app.command()\n"
        "def body() -> None:\n"
        "    try:\n"
        "        print('ready', flush=True); time.sleep(30)\n"
        "    finally:\n"
        f"        pathlib.Path({str(left)!r}).touch()\n"
        "module = types.ModuleType('planted'); module.app = app; sys.modules['planted'] = module\n"
        "VERBS['try'] = ('planted', '')\n"
        "sys.exit(main.run(['try']))\n"
    )
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == code
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert left.exists()


def test_an_ignored_hangup_ends_nothing():
    """As ``nohup`` starts a command: neither a verb's own end nor a sweep's asks for it."""
    script = (
        "import signal; from kvcache_sim.cli import main\n"
        "from kvcache_sim.extras.study.sweeps.stop import stop_on_signals\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN); main.run(['--version'])\n"
        "with stop_on_signals() as stop: signal.raise_signal(signal.SIGHUP)\n"
        "signal.raise_signal(signal.SIGHUP); print(stop.level, stop.exit_code)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1:] == ["0 0"]
