"""``kvsim explain``: the sentences on the hit rate, reuse, single requests, and the command."""

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.report.explain import hit_rate as causes
from kvcache_sim.report.explain import latency
from kvcache_sim.report.explain.break_even import load_ns
from kvcache_sim.report.explain.case import Case
from kvcache_sim.report.explain.explanation import Moment, explanation
from kvcache_sim.report.explain.sentences import SENTENCES
from kvcache_sim.report.finished import open_runs
from report_traces import make_trace
from support.fake_run import made_up_run, request_columns, write_run

COUNT = 40
#: Sentences whose function has another name.
NAMED = {"channel-too-slow": "too_slow"}
SAID = {name: say for group in SENTENCES.values() for name, say in group.items()}
PARTS = {"queueing": "queue_ns", "prefilling": "prefill_ns", "waiting-for-room": "fetch_room_ns"}


def test_every_sentence_is_the_function_of_its_name():
    """Each is at its threshold in ``test_explained_figures``; what of the hit rate is not there is below."""
    for name, say in SAID.items():
        if isinstance(say, partial):
            (of,), own = say.args, say.func.__name__.replace("_", "-")
            if say.func in (causes.missed, latency.tail_of):
                assert of == PARTS.get(name, name.replace("-", "_"))
            else:
                assert name in (f"{of}-{own}", f"{own}-{of}")
        else:
            assert NAMED.get(name, name.replace("-", "_")) == say.__name__
    assert len(SAID) == 40


def test_what_a_run_and_its_trace_say_of_themselves():
    run = SimpleNamespace(summary={"saturation": {"sentence": ""}}, trace=SimpleNamespace(warnings=()))
    case = SimpleNamespace(run=run)
    assert latency.saturated(case) is causes.synthesised(case) is None
    run.summary["saturation"]["sentence"] = "20 requests/s arrive, about 15/s would hold"
    assert latency.saturated(case) == "Saturated: 20 requests/s arrive, about 15/s would hold."
    run.trace.warnings = ("odd", "a.csv: prefixes are synthesised, not measured: 9 sessions")
    assert causes.synthesised(case).startswith("The prefixes are synthesised, not measured: 9 sessions. Hit")
    run.trace = None
    assert causes.synthesised(case) is None


@pytest.mark.parametrize(
    ("window", "rejected"), [(None, "more blocks"), (2050, "more blocks"), (2049, "(2,049)"), (9, "(9)")]
)
def test_a_rejected_request_is_explained_by_its_context_or_its_blocks(window, rejected):
    rows = {"request": [0], "arrival_ns": [7], "input_tokens": [2049], "output_tokens": [3], "status": [1]}
    scenario = {} if window is None else {"replica": {"max_model_len": window}}
    run = SimpleNamespace(requests={name: np.array(own) for name, own in rows.items()}, scenario=scenario)
    (arrives, end), reasons = explanation(run, 0)
    assert arrives == Moment(0, "arrives: 2,049 prompt tokens, 3 to generate")
    assert (end.since_arrival_ns, reasons, rejected in end.text) == (0, [], True)


@pytest.mark.parametrize("seed", range(4))
def test_reuse_is_that_of_the_prompts_before(seed):
    """Prompts are paths of a tree, of whole blocks or a token more, in which the last block may not be found whole."""
    draw, rows = np.random.default_rng(seed), []
    for n in range(COUNT):
        path = ("0", "1", "0")[n] if n < 3 else "".join(draw.choice(["0", "1"], draw.integers(1, 5)))
        ids = [int("1" + path[: k + 1], 2) for k in range(len(path))]
        rows.append((n * 10**9, 512 * len(ids) + int(draw.integers(2)), ids))
    columns = {name: np.zeros_like(values) for name, values in request_columns(COUNT).items()}
    columns["request"] = np.arange(COUNT)
    columns["arrival_ns"], columns["input_tokens"] = (np.array([row[k] for row in rows]) for k in (0, 1))
    lasts = draw.choice([109, 3000], COUNT)  # some prompts come before the one that they repeat has ended
    ends = columns["finish_ns"] = columns["arrival_ns"] + lasts * 10**6
    run = SimpleNamespace(requests=columns, finished=columns, trace=make_trace(rows), block_size_tokens=512)
    run.scenario_text, run.directory, run.junctions = "", Path("/planted"), None
    reuse = Case(run).reuse
    for n, (arrival_ns, tokens, ids) in enumerate(rows):
        held = [max((m for m in range(n) if block in rows[m][2]), default=-1) for block in ids]
        found = held.index(-1) if -1 in held else len(held)
        last = held[found - 1] if found else -1
        assert reuse.seen[n] == min(512 * found, (tokens - 1) // 512 * 512)
        assert reuse.last_user[n] == last
        assert reuse.idle_ns[n] == (max(arrival_ns - ends[last], 0) if found else -1)


def test_a_request_is_explained_event_by_event(tmp_path):
    (run,) = open_runs([made_up_run(tmp_path / "run", 50)])
    rows = run.requests
    slowest = int(np.argmax(rows["first_token_ns"] - rows["arrival_ns"]))
    moments, reasons = explanation(run, slowest)
    times = [moment.since_arrival_ns for moment in moments]
    assert times == sorted(times)
    assert moments[0].text.startswith("arrives")
    assert [m.since_arrival_ns for m in moments if m.text == "first token"] == [
        int(rows["first_token_ns"][slowest] - rows["arrival_ns"][slowest])
    ]
    assert "slower than 100.0 %" in reasons[0]
    assert reasons[1].startswith("Most of the difference is ")
    with pytest.raises(UsageError, match="0 to 49"):
        explanation(run, 50)


def test_a_run_whose_scenario_names_no_requests_is_explained_with_a_warning(tmp_path, capsys):
    directory = write_run(
        tmp_path / "run", request_columns(30), scenario="tiers: {gpu: {capacity: 99 blocks}}\n"
    )
    assert kvsim(["explain", str(directory)]) == 0
    out, err = capsys.readouterr()
    assert "What TTFT is made of\n  Mean TTFT is" in out
    assert " ".join(err.split()).startswith(f"warning: {directory}/scenario.yaml: no requests")


@pytest.mark.parametrize("gap_ms", [0, 60_000])
def test_evicted_blocks_were_idle_from_their_last_use_to_the_admission_that_missed_them(
    tmp_path, capsys, gap_ms
):
    """All at once, in the order a b a b …: a prompt arrives before the one that it repeats has finished."""
    rows = [{"timestamp": gap_ms * n, "input_length": 2048, "output_length": 4, "hash_ids": [9 * (n % 2) + k for k in range(4)]}
            for n in range(20)]  # fmt: skip
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    small = ["--set", "tiers.gpu.capacity=6 blocks", "--set", "replica.max_num_seqs=1"]
    assert (
        kvsim(["simulate", str(tmp_path / "t.jsonl"), "-o", str(tmp_path / "run"), "-q", *small, "--causes"])
        == 0
    )
    capsys.readouterr()
    assert kvsim(["explain", str(tmp_path / "run")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    idle = json.loads((tmp_path / "run" / "summary.json").read_text())["misses"]["evicted_idle_ms"]
    assert idle["requests"] == 18
    assert " 0 ns" not in said
    if gap_ms:
        assert "before reuse (median idle time 120 s)" in said
        assert idle["avg"] == pytest.approx(120_000, rel=0.01)
    else:
        median_ms = float(re.findall(r"before reuse \(median idle time ([\d.]+) ms\)", said)[0])
        assert median_ms == pytest.approx(idle["avg"], rel=0.2), "the time of the request between"


def test_hops_of_a_load_overlap_and_the_slowest_counts_whole():
    wires = {
        name: ChannelSettings(name, 10**9, latency_ns=n)
        for n, name in enumerate(("disk->cpu", "cpu->gpu"), 7)
    }
    wires["disk->cpu"] = replace(wires["disk->cpu"], bandwidth_bytes_per_s=10**8)
    cache = CacheSettings(block_size_tokens=16, kv_bytes_per_token=1000, num_layers=1)
    machine = SimpleNamespace(edge_channels={name: name for name in wires})
    settings = SimpleNamespace(machines=[machine], cache=cache, channels=wires)
    assert load_ns(settings, "disk", 1600) == 1600 * 1000 * 10 + 7 + 8


ASKED = {
    "--request": ["--request", "0"],
    "--session": ["--session", "0"],
    "--prefixes": ["--prefixes"],
    "--sensitivity": ["--sensitivity"],
    "--regret": ["--regret"],
    "--worst, --between": ["--worst", "1"],
}


@pytest.mark.parametrize("first", ASKED)
@pytest.mark.parametrize("second", ASKED)
def test_a_run_is_asked_one_question_at_a_time(tmp_path, capsys, first, second):
    """An answer needs the run, which is not there; two questions are refused before it is opened."""
    options = ASKED[first] if first == second else [*ASKED[first], *ASKED[second]]
    assert kvsim(["explain", str(tmp_path / "none"), *options]) != 0
    line = capsys.readouterr().err
    names = [name for name in ASKED if name in (first, second)]
    refused = f"{', '.join(names)}: one at a time" in line
    assert refused == (first != second), line
    if first == second and "--sensitivity" not in names and "--regret" not in names:
        assert kvsim(["explain", str(tmp_path / "none"), *options, "--plugins"]) == 2
        assert "has no effect without --sensitivity or --regret" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cause", "least", "words"),
    [
        ("never_seen", 5, "are requested for the first time"),
        ("diverged", 5, "diverge from every earlier request"),
        ("evicted", 5, "were evicted on their machine before reuse (median idle time 3 s)"),
        ("elsewhere", 5, "the router (own-rule) sent the request elsewhere"),
        ("not_ready", 5, "were still being computed by an earlier request"),
        ("shorter", 20, "fill no block of 16 tokens"),
        ("not_admitted", 5, "not cached or not visible"),
        ("window_moved_on", 5, "sliding-window layers had released"),
        ("no_checkpoint", 5, "no state checkpoint was kept"),
    ],
)
def test_a_cause_of_misses_is_said_from_half_a_per_cent_on(cause, least, words):
    """Of a thousand prompt tokens; what lies behind the last whole block from two per cent on."""
    settings = SimpleNamespace(router=SimpleNamespace(policy="own-rule"))
    for missed in (least - 1, least):
        reuse = SimpleNamespace(
            missed={cause: np.array([0, missed - 1, 1])}, evicted_idle_ns=np.array([9, 2 * 10**9, 4 * 10**9])
        )
        case = SimpleNamespace(
            reuse=reuse, prompt_tokens=1000, run=SimpleNamespace(trace=None, block_size_tokens=16),
            scenario=SimpleNamespace(settings=settings),
        )  # fmt: skip
        said = SAID[cause.replace("_", "-")](case)
        assert (said is None) is (missed < least)
        assert said is None or (said.startswith(f"{missed / 10:.1f} % of prompt tokens") and words in said)
    case.reuse = None
    assert SAID[cause.replace("_", "-")](case) is None


@pytest.mark.parametrize(
    ("rates", "bound", "full", "none"),
    [(None, None, False, False), ((0.0, 0.0), None, False, True), ((0.4, 0.5), "80.0 %", False, False), ((0.474, 0.5), "94.8 %", False, False), ((0.475, 0.5), "95.0 %", True, False)],
)  # fmt: skip
def test_the_hit_rate_against_its_bound_in_words(monkeypatch, rates, bound, full, none):
    monkeypatch.setattr(causes, "hit_rates", lambda run: rates)
    case = SimpleNamespace(run=SimpleNamespace(trace=None), reuse=None)
    said = causes.upper_bound(case)
    assert (
        said is None
        if bound is None
        else f"{100 * rates[0]:.1f} %, {bound} of the upper bound of 50.0 %" in said
    )
    assert (causes.at_upper_bound(case) is not None) is full
    assert (causes.nothing_repeats(case) is not None) is none
    assert causes.no_trace(case).startswith("Causes of misses are unknown")


def test_what_others_wrote_while_a_context_was_idle():
    """Requests 0 to 4 in order on machine 1, of 48 tokens each but the third; 5 on another."""
    rows = {
        "machine": np.array([1, 1, 1, 1, 1, 0]), "arrival_ns": np.array([0, 1, 2, 3, 4, 2]),
        "num_tokens_actually_prefilled": np.array([40, 40, 90, 40, 40, 999]), "output_tokens": np.array([8, 8, 6, 8, 8, 1]),
    }  # fmt: skip
    reuse = SimpleNamespace(
        missed={"evicted": np.array([0, 0, 0, 0, 16, 0])}, last_user=np.array([-1, -1, -1, -1, 0, -1])
    )
    tiers = [
        SimpleNamespace(capacity_blocks=7),
        SimpleNamespace(capacity_blocks=None),
        SimpleNamespace(capacity_blocks=5),
    ]
    settings = SimpleNamespace(machines=[SimpleNamespace(tiers=tiers)])
    case = SimpleNamespace(
        reuse=reuse, prompt_tokens=100, run=SimpleNamespace(finished=rows, block_size_tokens=16),
        scenario=SimpleNamespace(settings=settings),
    )  # fmt: skip
    assert causes.evictors(case) == (
        "While an evicted context was idle, other requests wrote a median of 12 blocks on its machine, whose tiers hold "
        "12. The largest request wrote 50.0 % of them."
    )
    reuse.last_user[4] = 3
    assert causes.evictors(case) is None, "no other request wrote in between"


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    ("options", "called", "text", "body"),
    [
        ("--worst 3", ("worst", "run", 3, None), "worst!", None),
        ("--between 1s 2.5s", ("worst", "run", 10, (10**9, 2_500_000_000)), "worst!", None),
        ("--session 17", ("session", "run", "17"), "17 of turns", ["17", "turns"]),
        ("--prefixes", ("prefixes", "run"), "rows!", {"prefixes": "rows"}),
        ("--request 4", ("request", "run", 4), "Request 4\n         0.001 ms  a\n     2,000.000 ms  b\nwhy.",
         {"request": 4, "events": [{"since_arrival_ns": 1000, "text": "a"}, {"since_arrival_ns": 2 * 10**9, "text": "b"}], "reasons": ["why."]}),
        ("--sensitivity", ("sensitivity", "run", False), "moved!", ["moved"]),
        ("--sensitivity --plugins", ("sensitivity", "run", True), "moved!", ["moved"]),
        ("--regret", ("regret", "run", False), "sums, mine, 2", "sums"),
    ],
)  # fmt: skip
def test_explain_prints_what_its_option_asks_for(
    tmp_path, monkeypatch, capsys, options, called, text, body, as_json
):
    calls = []

    def noting(name, answer):
        return lambda *asked: calls.append((name, *(own for own in asked if not callable(own)))) or answer

    moments = [
        SimpleNamespace(since_arrival_ns=ns, text=text) for ns, text in ((1000, "a"), (2 * 10**9, "b"))
    ]
    machines = [SimpleNamespace(role=role) for role in ("both", "decode", "prefill")]
    settings = SimpleNamespace(machines=machines, router=SimpleNamespace(policy="mine"))
    report = "kvcache_sim.report."
    for name, own in (
        ("finished.open_runs", lambda runs: ["run"]), ("explain.worst_text.worst_requests", lambda *asked: noting("worst", "worst!")(*asked[:3])),
        ("explain.session_cache.session_turns", noting("session", "turns")), ("explain.session_cache.session_json", lambda *own: own),
        ("explain.session_cache.session_text", "{} of {}".format), ("explain.prefixes.prefix_rows", noting("prefixes", "rows")),
        ("explain.prefixes.prefixes_text", "{}!".format), ("explain.explanation.explanation", noting("request", (moments, ["why."]))),
        ("sensitivity.moves.sensitivity", noting("sensitivity", "moved")), ("sensitivity.text.sensitivity_json", lambda moved: [moved]),
        ("sensitivity.text.sensitivity_text", "{}!".format), ("explain.case.Case", lambda run: SimpleNamespace(scenario=SimpleNamespace(settings=settings))),
        ("routing_regret.routing_regret", noting("regret", "sums")), ("routing_regret.regret_text", "{}, {}, {}".format),
    ):  # fmt: skip
        monkeypatch.setattr(report + name, own)
    asked = ["explain", str(tmp_path), *options.split(), *["--format", "json"] * as_json]
    assert kvsim(asked) == 0
    printed = capsys.readouterr().out
    assert calls == [called]
    if as_json and body is not None:
        assert json.loads(printed) == body
    else:
        assert printed.rstrip("\n") == text
    assert (kvsim([*asked, "--prefixes" if "--request" in options else "--request", *["5"] * ("--request" not in options)]) == 2)  # fmt: skip
    assert "one at a time" in capsys.readouterr().err
    if "--regret" in options:
        del machines[2]
        assert kvsim(asked) == 2
        assert "no choice to regret" in capsys.readouterr().err
