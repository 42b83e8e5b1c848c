"""The parts that ``kvsim calibrate`` asks with its options, and the lines in which it prints their answers."""

import json
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.main import run
from kvcache_sim.extras.calibrate import command, rows, server_runs, servers, shipped, topologies
from kvcache_sim.model.step_time_file import PhaseError
from kvcache_sim.report import fidelity
from kvcache_sim.report.fidelity import Fidelity, LatencyError

REACHED = UsageError("reached the fit")


@pytest.fixture
def asked(monkeypatch):
    """The calls of a fit, which ends at the first."""
    seen = []

    def fit(name):
        def reached(*given):
            seen.append((name, *given))
            raise REACHED

        return reached

    monkeypatch.setattr(command, "fit_rows", fit("fit"))
    monkeypatch.setattr(topologies, "transferred", fit("transfer"))
    monkeypatch.setattr(command, "correct_base", fit("base"))
    return seen


@pytest.mark.parametrize(
    ("options", "kind", "ranks", "more"),
    [
        ("", "fit", 1, (None,)),
        ("--tp 2", "fit", 1, (2,)),
        ("--ep 2 --dp 2", "fit", 2, (None,)),
        ("--ep 4 --tp 2 --dp 2", "fit", 2, (2,)),
        ("--ep 1 --tp 2", "fit", 1, (2,)),
        ("--ep 2", "--ep beyond tp × dp", 0, ()),
        ("--ep 5 --tp 2 --dp 2", "--ep beyond tp × dp", 0, ()),
        ("--transfer", "--tp: --transfer needs the degree", 0, ()),
        ("--transfer --tp 2 --ep 4 --dp 3", "transfer", 1, ((2, 4, 3),)),
        ("--base b --tp 2", "base", 1, (2, "b", "")),
        ("--base b --onto o", "base", 1, (None, "b", "o")),
        ("--onto o", "--base: --onto needs the source", 0, ()),
        ("--only a=b=c --only d=", "fit", 1, (None,)),
    ],
)
def test_a_fit_is_asked_for_what_the_options_say(asked, tmp_path, capsys, options, kind, ranks, more):
    argv = ["calibrate", "fit", str(tmp_path / "r.csv"), "-o", str(tmp_path / "m.toml"), *options.split()]
    assert run([*argv, "--model", "m", "--gpu", "g", "--links", "l"]) == 2
    if not ranks:
        assert kind in capsys.readouterr().err
        assert asked == []
        return
    assert REACHED.what in capsys.readouterr().err
    [(name, measured, *given)] = asked
    assert name == kind
    if kind == "transfer":
        topology = given[0]
        given = [(topology.tensor_parallel, topology.expert_parallel, topology.data_parallel)]
    assert tuple(given) == more
    only = {"a": "b=c", "d": ""} if "--only" in options else {}
    assert measured == command.Measured(tmp_path / "r.csv", only, "m", "g", "l", ranks, None)


def test_corrections_are_printed_by_the_number_of_rows(monkeypatch, tmp_path, capsys):
    curve = {
        25: {"decode": (1.25, 3.75), "prefill": (0.0, 2.0)},
        1000: {"decode": (1.0, None), "prefill": (12.0, 8.04)},
    }
    found = SimpleNamespace(dropped=7, curve=curve, text="made")
    monkeypatch.setattr(command, "correct_base", lambda *_: found)
    out = tmp_path / "m.toml"
    assert run(["calibrate", "fit", str(tmp_path / "r.csv"), "--base", "b", "-o", str(out)]) == 0
    shown = capsys.readouterr()
    assert out.read_text() == "made"
    assert f"wrote {out}" in shown.err
    lines = shown.out.splitlines()
    assert lines[0] == "7 rows of compilation left out"
    assert lines[2:] == [
        f"{'rows':>6}{'decode':>18}{'prefill':>18}",
        f"{25:6}{'1.2 / 3.8':>18}{'0.0 / 2.0':>18}",
        f"{1000:6}{'1.0 / –':>18}{'12.0 / 8.0':>18}",
    ]


ERRORS = [PhaseError("decode", 1234, 1.234, 5.678, -0.5), PhaseError("prefill", 5, 10.0, 20.0, 0.0)]
SHOWN = [
    f"{'phase':10}{'rows':>7}{'MAPE %':>9}{'p95 %':>9}{'bias %':>9}",
    f"{'decode':10}{1234:7}{1.23:9.2f}{5.68:9.2f}{-0.5:+9.2f}",
    f"{'prefill':10}{5:7}{10:9.2f}{20:9.2f}{'+0.00':>9}",
]


@pytest.mark.parametrize("sums", [True, False])
def test_a_check_says_whether_its_errors_are_of_sums(monkeypatch, tmp_path, capsys, sums):
    asked = []
    monkeypatch.setattr(
        command, "check_rows", lambda *given: (asked.append(given), ("judged", "predicted", sums))[1]
    )
    monkeypatch.setattr(
        rows, "phase_errors", lambda *given: ERRORS if given == ("judged", "predicted") else []
    )
    assert run(["calibrate", "check", str(tmp_path / "r.csv"), "mine", "--tp", "2", "--only", "a=b"]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == SHOWN
    assert ("errors of sums" in shown.err) == sums
    assert asked == [(command.Measured(tmp_path / "r.csv", {"a": "b"}), 2, "mine")]


@pytest.mark.parametrize("judged", [True, False])
@pytest.mark.parametrize("model", ["", "qwen3-8b"])
def test_a_fit_is_written_with_what_it_was_fitted_to(monkeypatch, tmp_path, capsys, judged, model):
    from kvcache_sim.extras.calibrate import fit_picture, model_file

    written, drawn = [], []
    fitted = SimpleNamespace(
        how="as sums", model="table", tensor_parallel=4, unseen=[1] * judged, judged=lambda: ("rows", "times")
    )
    monkeypatch.setattr(command, "fit_rows", lambda *_: fitted)
    monkeypatch.setattr(rows, "phase_errors", lambda *given: ERRORS if given == ("rows", "times") else [])
    monkeypatch.setattr(model_file, "model_text", lambda *given: (written.append(given), "text")[1])
    monkeypatch.setattr(fit_picture, "fit_picture_bytes", lambda *given: (drawn.append(given), b"svg")[1])
    out, picture = tmp_path / "m.toml", tmp_path / "p.svg"
    argv = ["calibrate", "fit", str(tmp_path / "r.csv"), "-o", str(out), "--picture", str(picture)]
    assert run([*argv, "--ep", "2", "--dp", "2", *(["--model", model] if model else [])]) == 0
    shown = capsys.readouterr()
    [(table, source, errors)] = written
    assert (table, errors, out.read_text()) == ("table", ERRORS if judged else [], "text")
    assert source == model_file.Provenance(model, "", 4, "as sums; r.csv", 2, 2)
    assert (drawn, picture.exists()) == ([("rows", "times", ".svg")] * judged, judged)
    assert (f"wrote {picture}" in shown.err, "as sums" in shown.err) == (judged, True)
    assert ("--set model=llama-3.1-8b" in " ".join(shown.err.split())) == (model == "")
    assert shown.out.splitlines() == (SHOWN if judged else SHOWN[:1])


def test_packaged_sets_are_listed_with_their_errors(monkeypatch, tmp_path, capsys):
    made = [("one", 'source = "a log"\n', ERRORS), ("two", 'source = "a guess"\n', [])]
    monkeypatch.setattr(shipped, "shipped_texts", lambda folder: made if folder == tmp_path else [])
    assert run(["calibrate", "shipped", str(tmp_path), "-o", str(tmp_path / "sets")]) == 0
    assert capsys.readouterr().out.splitlines() == ["one: a log", *SHOWN, "two: a guess, never measured"]
    assert (tmp_path / "sets" / "two.toml").read_text() == made[1][1]
    assert run(["calibrate", "shipped", str(tmp_path), "-o", str(tmp_path / "sets" / "two.toml")]) == 7
    assert "two.toml: cannot be made" in capsys.readouterr().err


def test_servers_are_shown_with_and_without_fitted_costs(monkeypatch, capsys):
    def run_of(engine):
        return SimpleNamespace(run=SimpleNamespace(label=(engine, "1", "m")))

    plain, fitted = [run_of("vllm"), run_of("vllm")], [run_of("vllm")]
    errors = {2: (10, 1.0, 2.0, 3.0, 4.0), 1: (5, 0.04, 0.06, 0.5, 0.25)}
    names = ("runs", "tpot_median", "tpot_mean", "ttft_median", "ttft_mean")
    monkeypatch.setattr(server_runs, "server_runs", lambda: ([1] * 9, 20))
    monkeypatch.setattr(servers, "predict_servers", lambda _: (plain, Counter({"few": 2, "many": 5})))
    monkeypatch.setattr(servers, "with_fitted_costs", lambda found: fitted if found is plain else [])
    monkeypatch.setattr(
        servers,
        "server_errors",
        lambda found: SimpleNamespace(**dict(zip(names, errors[len(found)], strict=True))),
    )
    far = [(("vllm", "1", "m"), "h100", 3, 40), (("sglang", "", "q"), "b200", 1, 2)]
    monkeypatch.setattr(servers, "far_off", lambda found: far if found is fitted else [])
    assert run(["calibrate", "servers"]) == 0
    without, with_costs = (
        f"{10:6}{'1.0 / 2.0':>16}{'3.0 / 4.0':>16}",
        f"{5:6}{'0.0 / 0.1':>16}{'0.5 / 0.2':>16}",
    )
    assert capsys.readouterr().out.splitlines() == [
        "20 distinct runs, 9 of them looked at, 2 with kernels",
        "  5 without: many",
        "  2 without: few",
        f"{'median / mean error, %':44}{'runs':>6}{'TPOT':>16}{'TTFT':>16}",
        f"{'kernels alone':44}{without}",
        f"{'kernels alone, vllm':44}{without}",
        f"{'parts scaled, host costs fitted':44}{with_costs}",
        f"{'parts scaled, host costs fitted, vllm':44}{with_costs}",
        f"TPOT off by more than {servers.FAR_OFF} ×, costs fitted:",
        "     3 of   40  m on h100 under vllm 1",
        "     1 of    2  q on b200 under sglang (no version)",
    ]


@pytest.mark.parametrize("failed", [0, 3])
def test_a_comparison_with_a_log_is_printed(monkeypatch, tmp_path, capsys, failed):
    from kvcache_sim.metrics import load_run
    from kvcache_sim.report.request_log import read

    latencies = [
        LatencyError("ttft", "mean", 1.0, 1.5, 50.0),
        LatencyError("tpot", "p50", np.nan, 0.02, np.nan),
    ]
    found = Fidelity(latencies, {"e2e": 12.345}, "start time", 5, 7, 9)
    monkeypatch.setattr(load_run, "load_run", lambda path: SimpleNamespace(requests=lambda: path))
    monkeypatch.setattr(read, "read_request_log", lambda path: SimpleNamespace(failed=failed, path=path))
    monkeypatch.setattr(
        fidelity, "compare", lambda made, real: found if (made, real.path) == tuple(paths) else None
    )
    paths = [tmp_path / "run", tmp_path / "log"]
    argv = ["calibrate", "compare", *map(str, paths)]
    assert run(argv) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        f"{'':12}{'real s':>12}{'simulated s':>14}{'error %':>10}",
        f"{'ttft mean':12}{1:12.4f}{1.5:14.4f}{50:+10.2f}",
        f"{'tpot p50':12}{np.nan:12.4f}{0.02:14.4f}{np.nan:+10.2f}",
        "e2e: mean |error| a request 12.35 %",
    ]
    left_out = [f"{paths[1]}: 3 failed requests left out"] * bool(failed)
    assert shown.err.splitlines() == [*left_out, "paired by start time: 5 of 7 real, 9 simulated requests"]
    assert run([*argv, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["latencies"][1]["real_s"], printed["latencies"][0]["real_s"]) == (None, 1.0)


@pytest.mark.parametrize(("client_ms", "said"), [(0.05, "0.1ms"), (0.049, ""), (2.0, "2.0ms"), (0, "")])
def test_a_fit_to_requests_shows_each_term_with_its_interval(monkeypatch, tmp_path, capsys, client_ms, said):
    from kvcache_sim.extras.calibrate import model_file, request_fit, timed

    terms = [
        SimpleNamespace(name="fixed", value=9.25, low=9, high=12345.6, unit="ms", unclear=""),
        SimpleNamespace(name="KV", value=0.5, low=0, high=1, unit="ms", unclear="few"),
    ]
    fitted = SimpleNamespace(model="table", terms=terms, errors=ERRORS, client_ms=client_ms)
    asked = []
    monkeypatch.setattr(timed, "timed_requests", lambda _: ([1, 2, 3], ("a remark",)))
    monkeypatch.setattr(request_fit, "fit_requests", lambda *given: (asked.append(given), fitted)[1])
    monkeypatch.setattr(model_file, "model_text", lambda *given: (asked.append(given), "text")[1])
    log, out = tmp_path / "log", tmp_path / "m.toml"
    assert run(["calibrate", "requests", str(log), "-o", str(out), "--tp", "2", "--gpu", "h100"]) == 0
    source = model_file.Provenance("", "h100", 2, "fitted to 3 requests; log")
    assert asked == [([1, 2, 3], 8192), ("table", source, ERRORS)]
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        f"{'':44}{'value':>10}{'90 % interval':>22}  unit",
        f"{'fixed':44}{9.25:10.4g}{'9 to 1.235e+04':>22}  ms",
        f"{'KV':44}{0.5:10.4g}{'0 to 1':>22}  ms",
        "    unclear: few",
        "TPOT of 1234 requests held out: mean |error| 1.2 %, p95 5.7 %, mean -0.5 %",
        "TTFT of 5 requests held out: mean |error| 10.0 %, p95 20.0 %, mean +0.0 %",
    ]
    assert f"{log}: a remark" in shown.err
    words = " ".join(shown.err.replace("\\\n", " ").split())
    assert ("--set model=llama-3.1-8b" in words, "client_offset" in words) == (True, said != "")
    assert f"replica.client_offset={said}" in words or not said
