"""The same option means the same in every verb, and former spellings still run."""

import json
from typing import Any

import pytest
from kvcache_sim.cli import main
from kvcache_sim.cli.former import current_words
from support.product.scenarios import commands

#: Positional arguments that name one trace or log, as their metavar says; ``merge`` takes several traces.
TRACES = {"TRACE", "[TRACE]"}
#: Verbs that read one trace.
READERS = {"simulate", "curve", "cachesim", "capacity", "sweep"} | {
    f"trace {verb}"
    for verb in """
        tokens check stats convert head slice scale rechunk sample repeat anonymise edit
    """.split()
}
#: Long option → its short form, the same wherever the option is.
SHORT = {"--output": "-o", "--quiet": "-q", "--config": "-c", "--jobs": "-j", "--help": "-h"}


def declared() -> list[tuple[str, Any]]:
    """Return (verb, parameter of typer) of all verbs."""
    return [(name, parameter) for name, command in commands() for parameter in command.params]


def shown(parameters: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [(name, one) for name, one in parameters if not getattr(one, "hidden", False)]


def test_every_verb_takes_its_one_trace_by_position() -> None:
    arguments = {
        name for name, one in declared() if one.param_type_name == "argument" and one.metavar in TRACES
    }
    assert arguments == READERS
    options = {option for _, one in shown(declared()) for option in one.opts}
    assert "--trace" not in options


def test_every_output_is_o_and_output() -> None:
    for name, one in shown(declared()):
        opts = set(one.opts)
        assert "--out" not in opts, name
        assert not opts & {"-o", "--output"} or opts == {"-o", "--output"}, name


@pytest.mark.parametrize("option", SHORT)
def test_an_option_has_its_short_form_in_every_verb(option: str) -> None:
    for name, one in shown(declared()):
        assert (option in one.opts) == (SHORT[option] in one.opts), name


def test_a_trace_that_is_read_has_its_block_size_under_one_name() -> None:
    tools = {name for name, one in declared() if "--trace-block-size" in one.opts}
    assert tools == READERS - {"simulate", "sweep", "capacity"} | {"trace merge"}


FORMER = [
    ("curve", ["t.jsonl", "--out", "x.csv"], ["t.jsonl", "--output", "x.csv"], 1),
    ("policies", ["new", "a", "--out=here"], ["new", "a", "--output=here"], 1),
    (
        "trace",
        ["head", "t", "--out", "x", "--block-size", "16"],
        ["head", "t", "--output", "x", "--trace-block-size", "16"],
        2,
    ),
    ("trace", ["rechunk", "t", "--block-size", "16"], ["rechunk", "t", "--block-size", "16"], 0),
    ("sweep", ["--trace", "t.jsonl", "--grid", "a=1,2"], ["t.jsonl", "--grid", "a=1,2"], 1),
    ("sweep", ["--grid", "a=1,2", "--trace=t.jsonl"], ["--grid", "a=1,2", "t.jsonl"], 1),
    ("simulate", ["--trace", "t.jsonl"], ["--trace", "t.jsonl"], 0),
    ("curve", ["--", "--out"], ["--", "--out"], 0),
]


@pytest.mark.parametrize(("verb", "words", "now", "notes"), FORMER)
def test_former_options_run_with_a_note_each(verb, words, now, notes, capsys) -> None:
    assert current_words(verb, words) == now
    said = capsys.readouterr().err.splitlines()
    assert len(said) == notes
    assert all(line.startswith("note: --") and " is now " in line for line in said)


def rows(folder, count=6, block=512) -> str:
    path = folder / "t.jsonl"
    lines = [
        json.dumps(
            {"timestamp": 1000 * n, "input_length": 2 * block, "output_length": 4, "hash_ids": [0, n + 1]}
        )
        for n in range(count)
    ]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_a_sweep_reads_its_trace_before_or_after_its_options(tmp_path, capsys) -> None:
    trace = rows(tmp_path)
    said = []
    for words in (
        [trace, "--grid", "seed=1,2"],
        ["--grid", "seed=1,2", trace],
        ["--grid", "seed=1,2", "--trace", trace],
    ):
        assert main.run(["sweep", *words, "--dry-run"]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] == said[2]
    assert "2 distinct" in said[0]
    assert main.run(["sweep", trace, trace, "--grid", "seed=1,2"]) == 2
    assert main.run(["sweep", "merge", str(tmp_path), "-o", str(tmp_path / "whole")]) != 0
    assert "merge" not in capsys.readouterr().err


def test_rechunk_takes_the_new_size_by_either_name_and_refuses_the_old_one(tmp_path, capsys) -> None:
    trace = rows(tmp_path)
    for option in ("--to", "--block-size"):
        target = tmp_path / f"{option}.jsonl"
        assert main.run(["trace", "rechunk", trace, option, "128", "-o", str(target)]) == 0
        ids = json.loads(target.read_text().splitlines()[0])["hash_ids"]
        assert len(ids) == 1024 // 128
        assert main.run(["trace", "rechunk", trace, option, "512", "-o", str(tmp_path / "same.jsonl")]) == 2
        said = capsys.readouterr().err.splitlines()[-1]
        assert said.startswith("--to: the trace's own block size; got 512; expected a smaller one")
    assert not (tmp_path / "same.jsonl").exists()


def test_options_have_the_values_that_they_had(snapshot):
    """Those that have a value of their own; all others are off, empty or none."""
    found: dict[str, list[str]] = {}
    for verb, option in declared():
        own = getattr(option.default, "value", option.default)
        if own not in (None, "", []) and own is not False:
            found.setdefault(verb, []).append(f"{option.opts[-1]}={own}")
    assert "\n".join(f"{verb} {' '.join(words)}" for verb, words in found.items()) == snapshot
