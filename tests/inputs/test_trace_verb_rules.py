"""Verbs on traces over stand-ins of reading, changing and writing: what their options hand on."""

import io
import json
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.workload.imports import naming
from kvcache_sim.workload.readers.settings import ReadSettings
from kvcache_sim.workload.readers.stream import NeedsWhole


@dataclass
class Whole:
    """A trace that is read whole."""

    warnings: tuple[str, ...] = ()
    block_size: int = 64


@dataclass
class Rows(Whole):
    """A trace in windows, or row by row: no ``Whole`` to the verbs."""

    header: str = "header"

    def watch(self, watch):
        self.watched = watch


SECOND = 10**9
#: words → how the trace is read, and what is called with it.
CHANGES = {
    "head": ("load", "head", 10), "head -n 3": ("load", "head", 3), "slice": ("load", "cut", 0, 3600 * SECOND), "slice --from 1s --to 2s": ("load", "cut", SECOND, 2 * SECOND),
    "scale": ("load", "scale", 1), "scale --speed 3": ("load", "scale", 3), "sample": ("load", "sample", 0.1, 0), "sample --fraction 0.5 --seed 4": ("load", "sample", 0.5, 4),
    "anonymise": ("load", "anonymise"), "rechunk": ("load_windows", "rechunk", 16), "rechunk --to 4": ("load_windows", "rechunk", 4),
    "repeat": ("load_windows", "repeat", 2, SECOND), "repeat -n 3 --gap 5s": ("load_windows", "repeat", 3, 5 * SECOND), "convert --fill-ids": ("load", "fill_missing_ids"),
    "convert": ("load_windows", ""),
}  # fmt: skip


@pytest.mark.parametrize("words", CHANGES)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("long", [False, True])
def test_a_changed_trace_is_written(calls, words, full, long):
    trace = SimpleNamespace() if long else Whole()
    names = {name: lambda *given: "changed" for name in ("head", "cut", "scale", "sample", "anonymise", "rechunk", "repeat")}  # fmt: skip
    log = calls(
        workload__trace__Trace=Whole, cli__trace__options__load=Whole(), cli__trace__options__load_windows=trace, cli__trace__options__save=None, workload__missing_ids__fill_missing_ids="changed",
        workload__toolbox__windowed__rechunked="parts", workload__toolbox__windowed__repeated=lambda given, again, *rest: (again(), "parts")[1], workload__toolbox__windowed__converted="parts",
        **{f"workload__toolbox__transforms__{name}": own for name, own in names.items()},
    )  # fmt: skip
    more = "--on-bad-row skip --time-order keep --trace-format f --trace-block-size 16 -o x --force"
    verb, *own = words.split()
    assert kvsim(["trace", verb, "t", *own, *more.split() * full]) == 0
    reading = ReadSettings(missing_ids="leave", keep_unknown=True)
    if full:
        reading = replace(reading, block_size=16, format="f", on_bad_row="skip", time_order="keep")
    read, change, *given = CHANGES[words]
    output = "x" if full else "-"
    opened = ("load", "t", reading) if read == "load" else ("load_windows", "t", reading, output)
    in_parts = read == "load_windows" and long
    given_trace = trace if in_parts else Whole()
    changed = [(change, given_trace, *given)] * bool(change)
    result = "changed" if change else given_trace
    if in_parts:
        name = {"rechunk": "rechunked", "repeat": "repeated"}.get(change, "converted")
        done = next(entry for entry in log if entry[0] == name)
        again = [done[2]] if change == "repeat" else []
        changed, result = [(name, trace, *again, *given), *[opened] * len(again)], "parts"
    assert log == [opened, *changed, ("save", result, output, full)]


def test_chats_are_converted_with_what_their_texts_need(calls):
    log = calls(
        workload__trace__Trace=Whole,
        cli__trace__options__load_windows=Whole(),
        cli__trace__options__save=None,
    )
    assert kvsim(["trace", "convert", "t", "--bytes-per-token", "3", "--tokenizer", "k", "--answer-tokens", "7"]) == 0  # fmt: skip
    assert log[0][2] == ReadSettings(missing_ids="leave", keep_unknown=True, bytes_per_token=3, tokenizer="k", answer_tokens=7)  # fmt: skip


def test_standard_input_is_repeated_whole_and_merged_once(calls, capsys):
    log = calls(
        cli__trace__options__load=lambda path, reading: Whole((path,)), cli__trace__options__save=None, workload__toolbox__transforms__repeat="changed", workload__toolbox__transforms__merge="merged",
    )  # fmt: skip
    assert kvsim(["trace", "merge", "-", "b", "-o", "x", "--force", "--on-bad-row", "skip"]) == 0
    reading = ReadSettings(missing_ids="leave", keep_unknown=True, on_bad_row="skip")
    assert log == [("load", "-", reading), ("load", "b", reading), ("merge", [Whole(("-",)), Whole(("b",))]), ("save", "merged", "x", True)]  # fmt: skip
    assert kvsim(["trace", "merge", "-", "-"]) == 2
    assert "standard input can be read once" in capsys.readouterr().err


@pytest.mark.parametrize("picture", [False, True])
def test_statistics_are_printed_and_drawn(calls, capsys, picture):
    log = calls(
        cli__trace__options__load="trace", workload__toolbox__stats__trace_stats={"a": 1}, workload__toolbox__stats__table="the table",
        workload__toolbox__stats__working_set_svg="svg", workload__toolbox__write__write_lines=None,
    )  # fmt: skip
    more = ["--format", "json", "--picture", "p.svg", "--force", "--time-order", "sort"] if picture else []
    assert kvsim(["trace", "stats", "t", *more]) == 0
    reading = ReadSettings(missing_ids="leave", keep_unknown=True, time_order="sort" if picture else "error")
    drawn = [("working_set_svg", {"a": 1}), ("write_lines", Path("p.svg"), ["svg"], True)]
    assert log == [("load", "t", reading), ("trace_stats", "trace"), *(drawn if picture else [("table", {"a": 1})])]  # fmt: skip
    assert capsys.readouterr().out == ('{\n  "a": 1\n}\n' if picture else "the table\n")


@pytest.mark.parametrize("found", [False, True])
@pytest.mark.parametrize("full", [False, True])
def test_a_log_is_imported_or_converted(calls, capsys, monkeypatch, found, full):
    made = None
    if found:
        made = type("Made", (), {"lines": lambda self: ["line\n"], "__len__": lambda self: 1234, "kind": SimpleNamespace(name="vllm")})()  # fmt: skip
    monkeypatch.setattr(naming.Notes, "lines", lambda self, log: [f"note of {log}"])
    log = calls(
        workload__imports__write__import_log=lambda *asked: made, workload__imports__naming__salt_of=b"salt", cli__trace__options__load="trace", cli__trace__options__save=None,
        workload__toolbox__write__write_lines=None, cli__trace__options__print_written=None,
    )  # fmt: skip
    more = "--from vllm --bytes-per-token 3 --block-size 32 --salt-file s --answer-tokens 7 -o x --force --on-bad-row skip"
    assert kvsim(["trace", "import", "l", *more.split() * full]) == 0
    asked = log[1][3]
    assert log[:2] == [("salt_of", Path("s") if full else None), ("import_log", "l", "vllm" if full else "", asked)]  # fmt: skip
    own = asked.naming
    assert (own.block_size, asked.answer_tokens, asked.skips) == (
        (32, 7, True) if full else (16, None, False)
    )
    printed = capsys.readouterr()
    reading = ReadSettings(missing_ids="leave", keep_unknown=True)
    if full:
        reading = replace(reading, on_bad_row="skip", bytes_per_token=3, answer_tokens=7)
    if not found:
        assert log[2:] == [("load", "l", reading), ("save", "trace", "x" if full else "-", full)]
        assert printed.err == "l: is a trace already, converted as by kvsim trace convert\n"
        return
    assert printed.err == "note: note of l\n"
    assert printed.out == ("" if full else "line\n")
    assert log[2:] == ([("write_lines", Path("x"), ["line\n"], True), ("print_written", 1234, "x", 32, " of vllm")] if full else [])  # fmt: skip
    assert kvsim(["trace", "import", "l", "--on-bad-row", "drop"]) == 2


@pytest.mark.parametrize("target", [False, True])
@pytest.mark.parametrize("full", [False, True])
def test_a_workload_is_generated(calls, capsys, target, full):
    @dataclass
    class Settings:
        block_size: int = 32
        requests: int = 10**9

    file = io.BytesIO()
    log = calls(
        workload__generate__settings_of=Settings(), workload__generate__write_jsonl=lambda settings, seed, text: text.write("row\n") and 12, workload__generate__build__has_target=target,
        workload__generate__build__at_target=Settings(64), workload__generate__build__assemble="part", workload__generate__build__reached="reached it",
        cli__trace__generate__new_file=nullcontext(file), cli__trace__options__print_written=None,
    )  # fmt: skip
    more = (
        ["--requests", "5", "--seed", "3", "--set", "a=1", "--set", "b.c=2", "-o", "x", "--force"]
        if full
        else []
    )
    assert kvsim(["trace", "generate", "rag", *more]) == 0
    seed, used = 3 if full else 0, Settings(64) if target else Settings()
    tried = [("at_target", Settings(), seed), ("assemble", Settings(64, 20_000), seed, ""), ("reached", Settings(64), "part")]  # fmt: skip
    assert log[0] == ("settings_of", "rag", {"requests": 5, "a": 1, "b": {"c": 2}} if full else {"requests": 1000})  # fmt: skip
    assert [entry[:3] if entry[0] == "write_jsonl" else entry for entry in log[1:]] == [
        ("has_target", Settings()), *tried * target, *([("new_file", Path("x"), True)] * full), ("write_jsonl", used, seed),
        *([("print_written", 12, "x", used.block_size)] * full),
    ]  # fmt: skip
    printed = capsys.readouterr()
    assert (printed.out, file.getvalue()) == (("", b"row\n") if full else ("row\n", b""))
    assert printed.err == ("reached it\n" if target else "")


#: words, raised by reading rows → how the trace is read, in turn; None: an error.
READ = [
    ("t", False, "open_rows"), ("t --policy s3fifo", False, "open_rows"), ("t --policy vllm", False, "read_trace"), ("t --policy lru --policy vllm", False, "read_trace"),
    ("t --whole", False, "read_trace"), ("t --reuse-outputs", False, "read_trace"), ("t --requests r.csv", False, "read_trace"),
    ("t --policy belady", False, "open_rows read_trace"), ("- --policy belady", False, "read_trace"), ("-", False, "open_rows"),
    ("t", True, "open_rows read_trace"), ("-", True, None), ("t --requests r.csv --policy lru --policy lfu", False, None), ("t --force", False, None),
]  # fmt: skip


@pytest.mark.parametrize(("words", "needs_whole", "reads"), READ)
@pytest.mark.parametrize("as_json", [False, True])
def test_one_cache_is_replayed_by_rows_where_that_is_enough(calls, capsys, tmp_path, monkeypatch, words, needs_whole, reads, as_json):  # fmt: skip
    """A trace of 8 bytes; a replay of rows, or of a whole trace, and its figures printed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t").write_text("8 bytes.")

    def replayed(rows, asked):
        if needs_whole:
            raise NeedsWhole("later")
        return [{"rows": name} for _, name in asked]

    log = calls(
        workload__trace__Trace=Whole, workload__readers__stream__RowStream=Rows, workload__readers__read__open_rows=Rows(("w",)), workload__readers__read_trace=Whole(("w",)), report__cachesim__capacity_of={"capacity_blocks": 3},
        replay__request__ReplayRequest=lambda *given, **named: SimpleNamespace(block_size_tokens=16, capacity_blocks=3, given=given, named=named),
        replay__streamed__replay_rows=replayed, replay__cachesim__simulate_cache=lambda request, name: {"whole": name, "requests": "table"}, replay__streamed__memory_note="much memory",
        report__cachesim__cachesim_text="one", report__cachesim__policies_text="several", report__cachesim__requests_csv=b"csv", base__output__write_new=None,
        workload__sessions__unseen_changes=1234, cli__reading__Reading=SimpleNamespace(done=lambda: log.append(("done",))),
    )  # fmt: skip
    code = kvsim(["cachesim", *words.split(), "--kv-bytes-per-token", "10", *["--format", "json"] * as_json])
    printed = capsys.readouterr()
    if reads is None:
        assert code in (2, 3)
        return
    assert code == 0
    assert [entry[0] for entry in log if entry[0] in ("open_rows", "read_trace")] == reads.split()
    by_rows, names = reads == "open_rows", [word for word in ("s3fifo", "vllm", "belady") if word in words] or ["lru"]  # fmt: skip
    names = ["lru", "vllm"] if "lru --policy" in words else names
    assert ("done",) in log or reads.split()[0] != "open_rows" or "belady" in words
    figures = [{"rows" if by_rows else "whole": name, "capacity_bytes": 480} for name in names]
    if as_json:
        assert json.loads(printed.out) == (figures[0] if len(names) == 1 else figures)
    else:
        assert printed.out == ("one\n" if len(names) == 1 else "several\n")
        assert log[-1][1:] == (names[0] if len(names) == 1 else names, figures[0] if len(names) == 1 else figures)  # fmt: skip
    ((_, request, *_),) = [entry for entry in log if entry[0] == "simulate_cache"][:1] or [(0, None)]
    if request is not None:
        assert request.named["explain"] is True
    notes = ["warning: much memory"] * (words == "t --policy belady") + ["warning: w"]
    said = printed.err.splitlines()
    assert said[: len(notes)] == notes
    assert ("1,234 next turns" in printed.err) is ("--reuse" in words)
    if "belady" in words and by_rows is False and words[0] == "t":
        assert ("memory_note", "belady", 8) in log
    if "--requests" in words:
        assert ("write_new", Path("r.csv"), b"csv", False) in log
