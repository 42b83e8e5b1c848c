"""``kvsim calibrate``: a file of measurements becomes a model a scenario can name; a run meets a real log."""

import json
import math
import tempfile
from dataclasses import astuple, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import TraceError
from kvcache_sim.cli.main import run
from kvcache_sim.extras.calibrate.fit import predict_ms
from kvcache_sim.extras.calibrate.fit_picture import fit_picture
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_times import load_step_time, measured_on
from kvcache_sim.report.fidelity import compare
from kvcache_sim.report.request_log import read
from kvcache_sim.report.request_log.formats import LoggedRequest
from kvcache_sim.report.request_log.read import _log, logged_requests, read_request_log
from support.examples import examples
from support.timed_rows import TRUE, random_rows


@pytest.fixture
def iterations(tmp_path):
    path = tmp_path / "rows.csv"
    lines = [
        "tp,prefill_tokens,prefill_requests,prefill_past_kv_tokens,decode_requests,decode_kv_tokens,iter_ms"
    ]
    rows = random_rows(600)
    predicted = predict_ms(TRUE, rows)
    for degree in (1, 2, 4):
        for i in range(len(rows)):
            values = (rows.prefill_tokens, rows.prefill_requests, rows.past_tokens, rows.decode_sequences)
            cells = [f"{column[i]:g}" for column in (*values, rows.decode_kv_tokens)]
            lines.append(",".join([str(degree), *cells, f"{predicted[i] / degree:.4f}"]))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_fit_is_written_and_its_error_printed(iterations, tmp_path, capsys):
    out = tmp_path / "m.toml"
    assert (
        run(["calibrate", "fit", str(iterations), "--tp", "1", "-o", str(out), "--model", "llama-3-8b"]) == 0
    )
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split() == ["phase", "rows", "MAPE", "%", "p95", "%", "bias", "%"]
    assert {line.split()[0] for line in printed[1:]} == {"decode", "mixed", "prefill"}
    assert all(float(line.split()[2]) < 2 for line in printed[1:])
    assert load_step_time(str(out)).table(8192, 256) is not None
    assert measured_on(str(out)).model == "llama-3-8b"
    assert measured_on(str(out)).gpu is None


def test_nothing_is_overwritten_unasked(iterations, tmp_path, capsys):
    out = tmp_path / "m.toml"
    out.write_text("mine")
    assert run(["calibrate", "fit", str(iterations), "--tp", "1", "-o", str(out)]) == 6
    assert out.read_text() == "mine"
    assert "--force" in capsys.readouterr().err


def test_a_degree_is_predicted_from_the_others(iterations, tmp_path, capsys):
    out = tmp_path / "m.toml"
    assert run(["calibrate", "fit", str(iterations), "--tp", "2", "--transfer", "-o", str(out)]) == 0
    decode = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("decode"))
    assert float(decode.split()[2]) < 10


def test_check_judges_an_existing_set(iterations, tmp_path, capsys):
    out = tmp_path / "m.toml"
    run(["calibrate", "fit", str(iterations), "--tp", "1", "-o", str(out)])
    capsys.readouterr()
    assert run(["calibrate", "check", str(iterations), str(out), "--tp", "2"]) == 0
    decode = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("decode"))
    assert float(decode.split()[4]) == pytest.approx(100, abs=5)  # twice as slow as TP 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "choose one with --tp"),
        (["--tp", "3"], "no rows of TP degree 3"),
        (["--transfer"], "needs the degree"),
        (["--only", "tp"], "COLUMN=VALUE"),
        (["--only", "tp=9"], "no iterations"),
        (["--only", "colour=red"], "no column colour"),
    ],
)
def test_what_cannot_be_fitted_is_refused(iterations, tmp_path, capsys, options, says):
    out = tmp_path / "m.toml"
    assert run(["calibrate", "fit", str(iterations), "-o", str(out), *options]) in (2, 3)
    assert says in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        ("attention,1,a,g", ["--gpu", "h100"], "kernel times need --model and --gpu"),
        ("attention,1,a,g", ["--model", "llama-3-8b"], "kernel times need --model and --gpu"),
        (
            "attention,1,a,g\nattention,2,a,g",
            ["--model", "llama-3-8b", "--gpu", "h100"],
            "kernels of several TP degrees",
        ),
        (
            "attention,1,a,g\nattention,1,b,g",
            [],
            "rows of several values of model; got a, b; choose one with --only model=",
        ),
        (
            "attention,1,a,g\nattention,1,a,h",
            [],
            "rows of several values of gpu; got g, h; choose one with --only gpu=",
        ),
        ("attention,1,a,g", ["--model", "llama-3-8b", "--gpu", "h100"], "no column op"),
        (",1,a,g", ["--dp", "2"], "ranks and unequal lengths are composed of kernels"),
    ],
)
def test_kernels_of_one_deployment_alone_are_composed(tmp_path, capsys, rows, options, said):
    path = tmp_path / "kernels.csv"
    path.write_text(f"kind,tp,model,gpu\n{rows}\n")
    assert run(["calibrate", "fit", str(path), "-o", str(tmp_path / "m.toml"), *options]) in (2, 3)
    assert said in " ".join(capsys.readouterr().err.split())


def test_one_phase_alone_is_fitted_and_the_same_rows_give_the_same_file(tmp_path, capsys):
    head = "iter_ms,prefill_tokens,decode_requests,decode_kv_tokens\n"
    for name, line in (("decode", "{ms},0,{n},{kv}"), ("prefill", "{ms},{kv},0,0")):
        rows = tmp_path / f"{name}.csv"
        body = "".join(line.format(ms=10 + n / 4, n=n, kv=90 * n) + "\n" for n in range(1, 41))
        rows.write_text(head + body)
        made = []
        for out in (tmp_path / f"{name}-1.toml", tmp_path / f"{name}-2.toml"):
            assert run(["calibrate", "fit", str(rows), "-o", str(out)]) == 0
            made.append(out.read_bytes())
        printed = capsys.readouterr().out.splitlines()
        assert [text.split()[0] for text in printed] == ["phase", name] * 2
        assert made[0] == made[1]
        table = load_step_time(str(tmp_path / f"{name}-1.toml")).table(64, 64)
        assert table is not None
        assert table.step(StepBatch((), 1, 90, 90)) > 0


def test_the_picture_has_a_point_a_row_and_the_errors_as_text():
    rows = random_rows(300)
    picture = fit_picture(rows, predict_ms(TRUE, rows))
    assert len(picture.data) == 300
    assert [row[0] for row in picture.table.rows] == ["decode", "mixed", "prefill"]


def aiperf(ttft, latency, tokens):
    metrics = {
        "time_to_first_token": {"value": ttft, "unit": "ms"},
        "request_latency": {"value": latency, "unit": "ms"},
        "output_sequence_length": {"value": tokens, "unit": "tokens"},
    }
    return json.dumps({"metadata": {}, "metrics": metrics, "error": None})


MISSED = LoggedRequest(failed=True)
_AIPERF = {
    "time_to_first_token": {"value": 5, "unit": "us"},
    "request_latency": {"value": 7, "unit": "s"},
    "output_token_count": {"value": 3},
}
_LISTS = {"ttfts": [1.0, 2.0], "itls": [[0.5, 0.25], []]}


def _guidellm(**requests):
    return {"benchmarks": [{"requests": requests}]}


def _finished(rid, **meta):
    return {
        "event": "request.finished",
        "rid": rid,
        "out": {"meta_info": {"e2e_latency": 2, "completion_tokens": 3, **meta}},
    }


def _received(rid):
    return {"event": "request.received", "rid": rid}


#: Rows of a log, and the requests that they are: (ttft_s, e2e_s, output, number, start, failed, input, cached).
RECORDS = [
    ([_LISTS], [(1, 1.75, 3, 0), (2, 2, 1, 1)]),
    (
        [{**_LISTS, "output_lens": [9, 8], "start_times": [4.5, 0], "input_lens": [7, 6], "cached_tokens": [5, 0]}],
        [(1, 1.75, 9, 0, 4.5, False, 7, 5), (2, 2, 8, 1, 0, False, 6, 0)],
    ),
    ([{**_LISTS, "errors": ["gone", ""], "mean_ttft_ms": 5}], [LoggedRequest(number=0, failed=True), (2, 2, 1, 1)]),
    ([{"metrics": _AIPERF}], [(5e-6, 7, 3)]),
    ([{"metrics": {**_AIPERF, "output_sequence_length": {"value": 4}}}], [(5e-6, 7, 4)]),
    (
        [
            {"metadata": {"request_start_ns": 25 * 10**8}, "metrics": {**_AIPERF, "input_sequence_length": {"value": 6}}},
            {"metadata": {"request_start_ns": 0}, "metrics": _AIPERF, "error": "gone"},
            {"metrics": None},
        ],
        [(5e-6, 7, 3, None, 2.5, False, 6), LoggedRequest(started_s=0, failed=True), MISSED],
    ),
    (
        [_received("b"), _finished("a", prompt_tokens=8, cached_tokens=6), _finished("b"), _received("c"), _received("b")],
        [(None, 2, 3), (None, 2, 3, None, None, False, 8, 6), MISSED],
    ),
    (
        [
            _received("a"),
            _finished("a", finish_reason={"type": "abort"}),
            _finished("b", finish_reason={"type": "stop"}),
            _finished("c", finish_reason=None),
        ],
        [MISSED, (None, 2, 3), (None, 2, 3)],
    ),
    (
        [
            _guidellm(
                successful=[
                    {"time_to_first_token_ms": 1500, "request_latency": 7, "output_tokens": 3, "prompt_tokens": 6},
                    {"time_to_first_token_ms": 500, "request_latency": 7, "output_tokens": 3, "info": {"timings": {"request_start": 0}}},
                ],
                incomplete=[{"info": {"timings": {"request_start": 2}}}],
                errored=None,
            )
        ],
        [
            (1.5, 7, 3, None, None, False, 6),
            (0.5, 7, 3, None, 0),
            LoggedRequest(started_s=2, failed=True),
        ],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "found"), RECORDS)
def test_each_format_gives_what_its_rows_have(tmp_path, rows, found):
    """Every member of every request; blank lines between rows say nothing, and a missing member is unknown."""
    path = tmp_path / "log"
    path.write_text("\n\n".join(map(json.dumps, rows)) + "\n")
    expected = [
        one
        if isinstance(one, LoggedRequest)
        else LoggedRequest(*(np.nan if each is None and at < 2 else each for at, each in enumerate(one)))
        for one in found
    ]
    made, wanted = ([astuple(one) for one in side] for side in (logged_requests(path), expected))
    for one, other in zip(made, wanted, strict=True):
        numbers = [np.nan if each is None else float(each) for each in one]
        assert numbers == pytest.approx(
            [np.nan if each is None else float(each) for each in other], nan_ok=True
        )


def test_rows_of_a_simulators_log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("request id,output,latency,TTFT,arrival,input,cached\n3,7,2e9,5e8,0,9,4\n1,6,1e9,0,,,\n")
    first, second = map(astuple, logged_requests(path))
    assert first == (0.5, 2, 7, 3, 0, False, 9, 4)
    assert second[:6] == (0, 1, 6, 1, None, False)
    assert np.isnan(second[6:]).all()


@pytest.mark.parametrize(
    ("numbers", "starts", "pairs"),
    [
        ((5, 0, 3), (None, 1, 2), ([5, 0, 3], "request id")),
        ((5, None, 3), (3, 1, 1), ([2, 0, 1], "start time")),
        ((None, None, None), (3, 0, 1), ([2, 0, 1], "start time")),
        ((None, None, None), (3, None, 1), ([0, 1, 2], "position")),
    ],
)
def test_requests_are_paired_by_what_each_of_them_has(tmp_path, numbers, starts, pairs):
    """By their own number, else by their start, equal starts in the file's order, else by position."""
    requests = [
        LoggedRequest(1.0, 2.0, 3, number=number, started_s=start)
        for number, start in zip(numbers, starts, strict=True)
    ]
    log = _log(requests, tmp_path)
    assert (log.numbers.tolist(), log.pairing) == pairs


_RUN = '{"mean_ttft_ms": 1.0, "ttfts": [1.0], "itls": [[]]}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"mean_ttft_ms": 1.0}', "--save-detailed"),
        (f"{_RUN}\n{_RUN}\n", "got 2 runs"),
        ('{"ttfts": [1.0], "itls": []}', "not a benchmark of vLLM or SGLang"),
        ('{"benchmarks": [{}, {}], "time_to_first_token_ms": 1}', "one benchmark a file"),
        (f"{_RUN}5", "got 2 runs"),
        (f"{_RUN}\n", ""),
        ("request id,latency\n0,1\n", "log:1: no column output"),
        ("request id,output,latency,TTFT\n0,1,1,1\n1,x,1,1\n", "log:3: not a number"),
        (
            '{"event": "request.received", "rid": "a"}\n\n{"event": "request.finished"}',
            "log:3: not an SGLang log",
        ),
        ('{"metrics": {}}\n\n[]', "log:3: not an AIPerf record"),
    ],
)
def test_other_files_of_benchmarks_are_refused_in_one_line(tmp_path, text, says):
    path = tmp_path / "log"
    path.write_text(text)
    if not says:
        assert len(logged_requests(path)) == 1
        return
    with pytest.raises(TraceError, match=says) as refused:
        read_request_log(path)
    assert "\n" not in str(refused.value)


@st.composite
def compared(draw):
    """A run of few requests, some unfinished, and the same requests as a client logged them, some failed."""
    few, time = st.integers(1, 6), st.integers(0, 9)
    drawn = draw(st.lists(st.tuples(st.booleans(), time, time, time, few), min_size=1, max_size=8))
    logged = draw(
        st.lists(st.tuples(st.sampled_from((True, True, False)), time, time, few), min_size=1, max_size=8)
    )
    return drawn, logged, draw(st.permutations(range(len(logged)))), draw(st.sampled_from(PAIRINGS))


PAIRINGS = ("request id", "start time", "position")


def latencies(ttft, e2e, tokens):
    """TTFT, TPOT and E2E in s; None: the request has none."""
    return {"ttft": ttft, "tpot": (e2e - ttft) / (tokens - 1) if tokens > 1 else None, "e2e": e2e}


def statistics_of(values):
    """Mean and percentiles between the two nearest of the sorted values."""
    values = sorted(value for value in values if value is not None)
    found = {"mean": sum(values) / len(values) if values else None}
    for percent in (50, 90, 99):
        at = (len(values) - 1) * percent / 100
        low = values[int(at) :][:2]
        found[f"p{percent}"] = low[0] + (low[-1] - low[0]) * (at % 1) if values else None
    return found


@examples(60)
@given(compared())
def test_a_run_is_compared_request_by_request(case):
    """With requests as plain rows: paired by number, by the rank of their start, or by their position in the log."""
    drawn, logged, order, pairing = case
    # simulated: (finished, arrival, wait, answer, tokens); real: (finished, TTFT, rest, tokens) in the order of the trace
    columns = {
        "status": np.array([STATUSES.index("finished" if row[0] else "rejected") for row in drawn], np.uint8),
        "arrival_ns": np.array([row[1] for row in drawn]) * 10**9,
        "first_token_ns": np.array([row[1] + row[2] if row[0] else -1 for row in drawn]) * 10**9,
        "finish_ns": np.array([row[1] + row[2] + row[3] if row[0] else -1 for row in drawn]) * 10**9,
        "output_tokens": np.array([row[4] for row in drawn]),
    }
    ranks = sorted(range(len(drawn)), key=lambda k: (drawn[k][1], k))
    key_of = {k: ranks.index(k) if pairing == "start time" else k for k in range(len(drawn))}
    ours = {key_of[k]: latencies(row[2], row[2] + row[3], row[4]) for k, row in enumerate(drawn) if row[0]}
    theirs = {k: latencies(row[1], row[1] + row[2], row[3]) for k, row in enumerate(logged) if row[0]}
    lines = []
    for k in range(len(logged)) if pairing == "position" else order:
        finished, ttft, rest, tokens = logged[k]
        record = json.loads(aiperf(1000 * ttft, 1000 * (ttft + rest), tokens))
        record["metadata"] = {"request_start_ns": 5 + k} if pairing == "start time" else {}
        lines.append(json.dumps(record if finished else {**record, "error": {"code": 500}}))
    if pairing == "request id":
        rows = [(k, logged[k]) for k in order if logged[k][0]]
        lines = ["request id,output,latency,TTFT"]
        lines += [f"{k},{row[3]},{(row[1] + row[2]) * 10**9},{row[1] * 10**9}" for k, row in rows]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log")
        path.write_text("\n".join(lines))
        if not theirs:
            with pytest.raises(TraceError, match=r"no finished requests|no rows|no requests"):
                read_request_log(path)
            return
        found = compare(columns, read_request_log(path))
    both = sorted(set(ours) & set(theirs))
    counts = (found.paired_requests, found.real_requests, found.simulated_requests)
    assert (found.paired_by, *counts) == (pairing, len(both), len(theirs), len(ours))
    assert [(row.metric, row.statistic) for row in found.latencies] == [
        *product(("ttft", "tpot", "e2e"), ("mean", "p50", "p90", "p99"))
    ]
    for row in found.latencies:
        real, made = (
            statistics_of(one[row.metric] for one in side.values())[row.statistic] for side in (theirs, ours)
        )
        error = 100 * (made / real - 1) if real and made is not None else np.nan
        expected = [np.nan if value is None else value for value in (real, made)] + [error]
        assert [row.real_s, row.simulated_s, row.error_percent] == pytest.approx(expected, nan_ok=True)
    for metric in ("ttft", "tpot", "e2e"):
        pairs = [(ours[k][metric], theirs[k][metric]) for k in both]
        errors = [abs(made / real - 1) for made, real in pairs if real and made is not None]
        assert found.per_request_mape.get(metric) == (
            pytest.approx(100 * sum(errors) / len(errors)) if errors else None
        )


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("0,5,-1,2000000,1000000", "no output tokens; got -1.0"),
        ("0,5,nan,2000000,1000000", "no output tokens; got nan"),
        ("0,5,3,inf,1000000", "no latency; got inf"),
        ("0,5,3,2000000,nan", "no TTFT; got nan"),
        ("0,5,3,2000000,-7", "no TTFT; got -7e-09"),
        ("0,-5,3,2000000,1000000", "no input tokens; got -5.0"),
    ],
)
def test_lengths_and_times_that_no_request_has_are_refused(tmp_path, row, said):
    log = tmp_path / "log.csv"
    log.write_text(f"request id,input,output,latency,TTFT\n{row}\n")
    with pytest.raises(TraceError, match=f"log.csv: request 1: {said}; expected a number from 0 on"):
        read_request_log(log)


@pytest.mark.parametrize("has_ttft", [True, False])
@pytest.mark.parametrize(
    ("name", "field", "may_lack"),
    [
        ("latency", "e2e_s", False),
        ("output tokens", "output_tokens", False),
        ("TTFT", "ttft_s", None),
        ("input tokens", "input_tokens", True),
        ("cached tokens", "cached_tokens", True),
    ],
)
def test_a_request_has_times_and_lengths_from_zero_on(name, field, may_lack, has_ttft):
    """A log without the time to the first token has none for any; what a failed request says is not read."""
    sound = LoggedRequest(0.5, 1.0, 3, input_tokens=4.0, cached_tokens=0.0)
    for value in (0.0, 7.0):
        read._refuse_impossible(replace(sound, **{field: value}), "w", has_ttft)
    may_lack = may_lack if may_lack is not None else not has_ttft
    for value in (-1.0, math.inf, *(() if may_lack else (math.nan,))):
        wrong = replace(sound, **{field: value})
        read._refuse_impossible(replace(wrong, failed=True), "w", has_ttft)
        with pytest.raises(TraceError, match=f"^w: no {name}; got {value}"):
            read._refuse_impossible(wrong, "w", has_ttft)
    if may_lack:
        read._refuse_impossible(replace(sound, **{field: math.nan}), "w", has_ttft)
