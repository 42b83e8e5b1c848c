"""Verbs that simulate, serve or read a trace, over stand-ins of all that they call."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.intervals import Wanted, opened_requests
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.cli.reading import OverMemoryError, sample_ids
from kvcache_sim.cli.serve import needed
from kvcache_sim.extras.live.events.announcer import EventSettings
from kvcache_sim.extras.live.events.publisher import Endpoint
from kvcache_sim.extras.live.run_output import Asked
from kvcache_sim.extras.live.serving import Serving
from kvcache_sim.report.curve.groups import GroupsAsk
from kvcache_sim.simulation import RunOptions
from kvcache_sim.workload.readers.settings import ReadSettings
from kvcache_sim.workload.readers.stream import NeedsWhole
from kvcache_sim.workload.synthetic_prefixes import PrefixAssumption


class Rows(SimpleNamespace):
    """Rows of a trace read one by one: those of ``first``."""


@pytest.mark.parametrize(
    ("words", "settings", "options", "choice"),
    [
        ("t", [], {}, Wanted.NEVER),
        ("t --format brief --check full --causes --engine spec", [], {"check": "full", "causes": True, "engine": "spec"}, Wanted.SHORT_RUNS),
        ("-c s -o d/e --force -q --prefixes --schedule-digests", [], {"prefixes": True, "schedule": True}, Wanted.NEVER),
        ("t --set a=1 --seed 0 --policy p --trace-format f --on-bad-row skip --synthesise-prefixes --format json --sensitivity",
         ["a=1", "seed=0", "cache.policy=p", "trace.format=f", "trace.on_bad_row=skip", "trace.synthesise_prefixes={}"], {}, Wanted.ALWAYS),
        ("t --record all", [], {"record_window_ns": (0, 2**63 - 1)}, Wanted.NEVER),
        ("t --record all:1s..2s --no-sensitivity", [], {"record_window_ns": (10**9, 2 * 10**9)}, Wanted.NEVER),
    ],
)  # fmt: skip
@pytest.mark.parametrize("rich", [False, True])
def test_a_run_is_made_kept_and_printed(calls, capsys, monkeypatch, words, settings, options, choice, rich):
    """A rich run has a trace, a mode, a note, warnings, uncertain times and a breached condition."""
    quiet, as_json, own = "-q" in words, "json" in words, "-o d/e" in words
    first = SimpleNamespace(sha256="sha")
    requests = Rows(first=first) if rich else first
    model = SimpleNamespace(name="own", trace=SimpleNamespace(path="p") if rich else None, cache=SimpleNamespace(semantics="s"))  # fmt: skip
    scenario = SimpleNamespace(model=model, resolved="resolved", gpu_capacity=SimpleNamespace(note="noted" * rich))  # fmt: skip
    summary = {"requests": {"arrived": 3}, "é": 1, **({"step_times": 1} if rich else {"step_times": 1, "certainty": 1})}  # fmt: skip
    done, directory = SimpleNamespace(warnings=["w"] * rich), SimpleNamespace(target=Path("d/e f"))
    observer = None if quiet else SimpleNamespace(phase=lambda name: log.append(("phase", name)))
    monkeypatch.setattr("kvcache_sim.cli.simulate.time", SimpleNamespace(process_time=lambda: 5.0))
    located = {name: lambda *asked: nullcontext(directory) for name in ("cli__simulate__open_run_directory", "cli__simulate__open_numbered_directory")}  # fmt: skip
    log = calls(
        **located, cli__simulate__TraceStream=Rows, cli__simulate__load_scenario=scenario, cli__simulate__wanted=choice, cli__simulate__opened_requests=requests, cli__simulate__resolved_with_trace="with",
        cli__simulate__config_hash="hash", cli__simulate__shown_progress=nullcontext(observer), cli__simulate__execute="execution",
        cli__simulate__with_intervals=(done, 2.5), cli__simulate__store=summary, cli__simulate__intervals_command=lambda *of: f"of {of}", cli__simulate__subject_line="subject",
        cli__simulate__summary_text="table", cli__simulate__brief_text="brief", cli__simulate__engine_mode=SimpleNamespace(sentence="vLLM") if rich else None,
        cli__simulate__next_step=lambda where: f"next {where}", metrics__load_run__load_run=SimpleNamespace(summary="before"),
        metrics__thresholds__parse_threshold=lambda text: SimpleNamespace(text=text, needs_baseline=True, holds=lambda now, before: rich and text == "x" and (now, before) == (summary, "before")),
    )  # fmt: skip
    line = ["simulate", *words.split(), "--fail-if", "x", "--fail-if", "y", "--baseline", "b"]
    assert kvsim(line) == (4 if rich else 0)
    asked = RunOptions(times=choice is not Wanted.NEVER, **options)
    where = ("open_run_directory", Path("d/e"), True) if own else ("open_numbered_directory", Path("runs"), "own", "hash")  # fmt: skip
    printed = capsys.readouterr()
    kind = "brief" if "brief" in words else "summary"
    shown = [] if as_json else [("subject_line", "resolved", 3), (f"{kind}_text", summary, "run        d/e f", "subject"), ("engine_mode", "s")]  # fmt: skip
    assert log == [
        ("load_scenario", Path("s") if own else None, settings, None if own else Path("t")), ("parse_threshold", "x"), ("parse_threshold", "y"), ("load_run", Path("b")),
        ("wanted", scenario, "--sensitivity" in words, "--no-sensitivity" in words, not quiet and not as_json), ("opened_requests", scenario, asked, choice),
        ("resolved_with_trace", scenario, first), ("config_hash", "with", "sha"), where, ("shown_progress", quiet), ("execute", scenario, requests, asked, observer, directory),
        ("with_intervals", "execution", requests, choice, 5.0, observer), *([("phase", "writing tables")] * (not quiet)),
        ("store", done, directory, ["kvsim", *line], ("replays_s", 2.5)), ("next_step", "'d/e f'"), *([("intervals_command", "p", "d/e f")] * rich), *shown,
    ]  # fmt: skip
    later, following = ["intervals: of ('p', 'd/e f')"] * rich, "next 'd/e f'"
    said = ["note: noted", "warning: w"] * (rich and not quiet) + [*later, following] * as_json + ["threshold breached: x"] * rich  # fmt: skip
    assert printed.err.splitlines() == said
    if as_json:
        assert (json.loads(printed.out), "é" in printed.out) == (summary, True)
    else:
        equals = ["equals     vLLM, in instant runs of whole prompts"] * rich
        assert printed.out.splitlines() == ["brief" if kind == "brief" else "table", *later, *equals, following]  # fmt: skip
    assert kvsim(["simulate", "t", "--fail-if", "x"]) == kvsim(["simulate", "-", "-c", "-"]) == 2


@pytest.mark.parametrize("choice", Wanted)
@pytest.mark.parametrize("path", ["-", "t", None])
def test_requests_of_standard_input_are_kept_where_replays_are_certain(calls, choice, path):
    scenario = SimpleNamespace(model=SimpleNamespace(trace=path and SimpleNamespace(path=path)))
    log = calls(cli__intervals__read_requests="kept", cli__intervals__open_requests="opened")
    kept = choice is Wanted.ALWAYS and path == "-"
    assert opened_requests(scenario, "options", choice) == ("kept" if kept else "opened")
    assert log == [("read_requests", scenario) if kept else ("open_requests", scenario, "options")]


ALL = (
    "-c s --set a=1 -o d --force --host 0.0.0.0 --port 9 --port-per-machine --speed 2 --tokenizer tok --served-model-name a --served-model-name b --api-key k "
    "--no-cached-usage --kv-events e --kv-events-replay r --kv-events-topic t --kv-events-layout array --kv-events-hash sha256_cbor --kv-events-bytes --max-body 3 "
    "--max-requests 5 --keep-text said --shutdown-route -q"
)  # fmt: skip
EVENTS = EventSettings(Endpoint("e", "r", "t"), "sha256_cbor", "array", True)
SERVED = Serving("0.0.0.0", 9, True, 2.0, Path("tok"), ("a", "b"), "k", False, 3 << 20, 5, True, "texts", EVENTS)  # fmt: skip


@pytest.mark.parametrize("full", [False, True])
def test_a_server_is_started_as_its_options_say(calls, capsys, full):
    scenario = SimpleNamespace(model=SimpleNamespace(name="own"), resolved="resolved")
    directory = SimpleNamespace(target=Path("d/e f"))
    log = calls(
        cli__serve__needed=None, extras__live__run_output__live_scenario=scenario, cli__serve__open_run_directory=nullcontext(directory), cli__serve__open_numbered_directory=nullcontext(directory),
        cli__serve__config_hash="hash", extras__live__record__texts__Texts="texts", cli__serve__subject_line="subject", cli__serve__summary_text="summary", cli__serve__next_step="next",
        extras__live__serving__serve_fleet=lambda scenario, directory, serving, typed, say: say("listening") or {"requests": {"arrived": 3}},
    )  # fmt: skip
    line = ["serve", *(ALL.split() if full else [])]
    assert kvsim(line) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("summary\nnext\n", "" if full else "listening\n")
    asked = Asked(Path("s") if full else None, ["a=1"] if full else [], ["kvsim", *line])
    (served,) = [entry for entry in log if entry[0] == "serve_fleet"]
    assert served[1:5] == (scenario, directory, SERVED if full else Serving(port=8000), asked.argv)
    log.remove(served)
    packages = ("needed", "kvsim serve", "starlette", "uvicorn", "msgspec", "prometheus_client")
    begun = [("open_run_directory", Path("d"), True), ("needed", "--kv-events", "zmq"), ("Texts", Path("said"), True)]  # fmt: skip
    if not full:
        begun = [("live_scenario", asked), ("config_hash", "resolved", ""), ("open_numbered_directory", Path("runs"), "own", "hash")]  # fmt: skip
    summary = {"requests": {"arrived": 3}}
    assert log == [packages, *begun, ("live_scenario", asked, directory.target), ("subject_line", "resolved", 3), ("summary_text", summary, "run        d/e f", "subject"), ("next_step", "'d/e f'")]  # fmt: skip
    for wrong in ("--host=", "--api-key= ", "--kv-events-replay=r", "--kv-events-topic=t", "--kv-events-layout=array", "--kv-events-hash=sha256_cbor", "--kv-events-bytes"):  # fmt: skip
        assert kvsim(["serve", wrong]) == 2
        assert capsys.readouterr().err.startswith(wrong.partition("=")[0] + ": ")
    needed("own", "json", "math")
    with pytest.raises(UsageError, match="packages are missing") as refused:
        needed("own", "no_such", "json", "nor_this")
    assert refused.value.got == "no_such, nor_this"


def test_a_curve_of_groups_has_its_sizes_alone(calls, capsys):
    log = calls(
        replay__group_settings__group_settings="groups", workload__readers__read__read_trace=SimpleNamespace(block_size=64), report__curve__write__check_outputs=None,
        replay__request__ReplayRequest=lambda *given, **named: (given[1:], named), report__curve__groups__groups_document="document", report__curve__groups__groups_rendered="the groups",
    )  # fmt: skip
    for words, size in ((["--block-size", "16"], 16), ([], 64)):
        assert kvsim(["curve", "t", "--model", "m", "--capacity", "3", "--format", "json", "--outputs", "computed", *words]) == 0  # fmt: skip
        asked = GroupsAsk(((size, 1), {"outputs": "computed"}), "groups", ("3",))
        assert log[:2] == [("check_outputs", [], False), ("group_settings", "vllm", "m", int("0" + "16" * bool(words)), None, "")]  # fmt: skip
        assert log[-2:] == [("groups_document", asked), ("groups_rendered", "document", "json")]
        assert capsys.readouterr().out == "the groups\n"
        log.clear()
    for wrong in ("--policy lfu", "--given 3", "--by-session", "--every-capacity", "--sample 0.5", "-o x.csv", "--order root", "--last-partial keep", "--outputs all"):  # fmt: skip
        assert kvsim(["curve", "t", "--model", "m", *wrong.split()]) == 2


ROWS, WHOLE, OVER, LATER = "open_rows", "read_trace", OverMemoryError(0.25), NeedsWhole("x")
GIB = 1 << 30
READ = [
    # words, what reading a trace raises at first; (function, share of the sample, memory, most ids) of each attempt; note
    ("t", [], [(ROWS, 0.0, 0, 0)], ""),
    ("t --capacity 3 --given 4 --outputs all --last-partial keep --every-capacity", [], [(ROWS, 0.0, 0, 0)], ""),
    *((f"t {words}", [], [(WHOLE, 0.0, 0, 0)], "") for words in ("--policy lfu", "--by-session", "--order root", "--block-size 16")),
    ("t --block-size 16 --trace-block-size 16 --extra-key k --synthesise-prefixes", [], [(ROWS, 0.0, 0, 0)], ""),
    ("t --sample 0.5 --seed 3 --block-size 16", [], [(ROWS, 0.5, 0, 0)], ""),
    ("t --sample 40000", [], [(ROWS, 0.0, 0, 40000)], "exact: no more than 40,000 distinct blocks"),
    ("t --sample 32768", [OVER], [(ROWS, 0.0, 0, 32768), (ROWS, 0.25, 0, 32768)], ""),
    ("t --memory 1GiB", [], [(ROWS, 0.0, GIB, 0)], "exact: its memory stays below 1GiB"),
    ("t --memory 1GiB", [OVER], [(ROWS, 0.0, GIB, 0), (ROWS, 0.25, 0, sample_ids(GIB))], "the exact curve needs more than 1GiB: estimated from a sample of 25.0 % of the ids, at most 3,303,820"),
    ("t --memory 1GiB", [LATER], [(ROWS, 0.0, GIB, 0), (WHOLE, 0.0, 0, 0)], ""),
    ("- ", [LATER], None, ""), ("t --seed 3", [], None, ""), ("- --sample 40000", [], None, ""), ("- --memory 1GiB", [], None, ""),
    ("t --memory 1GiB --sample 0.5", [], None, ""), ("t --memory 1GiB --policy lfu", [], None, ""), ("t --sample 40000 --policy lfu", [], None, ""), ("t --memory 1MiB", [], None, ""),
]  # fmt: skip


@pytest.mark.parametrize(("words", "raised", "attempts", "note"), READ)
def test_a_curve_is_read_row_by_row_where_that_is_enough(calls, capsys, words, raised, attempts, note):  # fmt: skip
    watched, left = [], list(raised)
    rows = Rows(header="header", block_size=64, warnings=["w"], watch=watched.append)
    whole = SimpleNamespace(block_size=64, warnings=["w"])

    def document(ask):
        if left:
            raise left.pop(0)
        return {"sample": {"ids": 1}, "distinct_blocks": 2}

    log = calls(
        workload__readers__stream__RowStream=Rows, workload__readers__read__open_rows=rows, workload__readers__read__read_trace=whole, replay__request__ReplayRequest=lambda *given, **named: (given, named),
        report__curve__build__curve_document=document, report__curve__write__write_outputs=None, report__curve__write__rendered="the curve",
    )  # fmt: skip
    code = kvsim(["curve", *words.split()])
    printed = capsys.readouterr()
    if attempts is None:
        assert code != 0
        assert "the curve" not in printed.out
        return
    said = " ".join(printed.err.split())
    assert (code, printed.out, said) == (0, "the curve\n", "warning: w" + f" note: {note}" * bool(note))
    asked = [entry[1] for entry in log if entry[0] == "curve_document"]
    read = [entry for entry in log if entry[0] in (ROWS, WHOLE)]
    watches = iter(watched)
    has, seed = words.split(), 3 if "--seed" in words else 0
    reading = ReadSettings(block_size=16, extra_keys=("k",), prefixes=PrefixAssumption()) if "-key" in words else ReadSettings()  # fmt: skip
    reading = replace(reading, digest=False)
    for (opened, rate, memory, ids), entry, ask in zip(attempts, read, asked, strict=True):
        sampled = replace(reading, sample=(rate, seed)) if rate else reading
        expected = (ROWS, "t", sampled) if opened == ROWS else (WHOLE, "t", ("settings", reading))
        assert entry == expected
        if opened == ROWS:
            watch = next(watches)
            assert (watch.path, watch.memory, watch.ids, watch.rate) == ("t", memory, ids, rate or 1.0)
        size = 16 if "--block-size" in has else 64
        full = "--given" in has
        named = {"outputs": "all" if full else "prompt", "touch_from": "root" if "root" in has else "tail", "last_partial": "keep" if full else "drop"}  # fmt: skip
        assert ask.request == (("header" if opened == ROWS else whole, size, 1), named)
        assert (ask.sample_rate, ask.seed, ask.rows) == (rate, seed, rows if opened == ROWS else None)
        assert (ask.capacities, ask.above, ask.every_capacity) == (((3,), (4,), True) if full else ((), (), False))  # fmt: skip
        assert (ask.policies, ask.by_session, ask.line) == (("lfu",) * ("lfu" in has), "--by-session" in has, False)  # fmt: skip
    assert log[-2:] == [("write_outputs", [], log[-2][2], False), ("rendered", log[-2][2], "table")]
