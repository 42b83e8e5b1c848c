"""A run meets a real log: what each format's rows say, and the errors of the run request by request."""

import json
import tempfile
from dataclasses import astuple
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import TraceError
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.report.fidelity import compare
from kvcache_sim.report.request_log.formats import LoggedRequest
from kvcache_sim.report.request_log.read import logged_requests, read_request_log
from support.examples import examples


def of(ttft=None, e2e=None, output=np.nan, **more):
    """A logged request; times that the log does not have are no number."""
    times = (np.nan if each is None else each for each in (ttft, e2e))
    return LoggedRequest(*times, output, **more)


def aiperf(ttft, latency, tokens):
    metrics = {
        "time_to_first_token": {"value": ttft, "unit": "ms"},
        "request_latency": {"value": latency, "unit": "ms"},
        "output_sequence_length": {"value": tokens, "unit": "tokens"},
    }
    return json.dumps({"metadata": {}, "metrics": metrics, "error": None})


_METRICS = """"time_to_first_token": {"value": 5, "unit": "us"}, "request_latency": {"value": 7, "unit": "s"},
 "output_token_count": {"value": 3}"""
_GUIDELLM = """{"benchmarks": [{"requests": {"successful": [
  {"time_to_first_token_ms": 1500, "request_latency": 7, "output_tokens": 3, "prompt_tokens": 6},
  {"time_to_first_token_ms": 500, "request_latency": 7, "output_tokens": 3,
   "info": {"timings": {"request_start": 0}}}],
 "incomplete": [{"info": {"timings": {"request_start": 2}}}], "errored": null}}]}"""


def _finished(rid, more=""):
    meta = f'"e2e_latency": 2, "completion_tokens": 3{more}'
    return f'{{"event": "request.finished", "rid": "{rid}", "out": {{"meta_info": {{{meta}}}}}}}'


def _received(rid):
    return f'{{"event": "request.received", "rid": "{rid}"}}'


def logged(text):
    """Return requests: TTFT, E2E and output where a log has them, and further members by name."""
    for words in (part.split() for part in text.split(";")):
        values = [float(word) if word != "-" else None for word in words if "=" not in word]
        members = dict(word.split("=") for word in words if "=" in word)
        more = {name: json.loads(value) for name, value in members.items()}
        yield of(*values, **more) if values else LoggedRequest(**more)


#: Logs, their rows apart, and the requests that they are.
RECORDS = {
    "lists": (['{"ttfts": [1.0, 2.0], "itls": [[0.5, 0.25], []]}'], "1 1.75 3 number=0; 2 2 1 number=1"),
    "lists with lengths, times and an error": (
        [
            """{"ttfts": [1.0, 2.0, 3.0], "itls": [[0.5, 0.25], [], []], "output_lens": [9, 8, 0],
            "start_times": [4.5, 0, 1], "input_lens": [7, 6, 5], "cached_tokens": [5, 0, 0],
            "errors": ["", "", "gone"], "mean_ttft_ms": 5}"""
        ],
        "1 1.75 9 number=0 started_s=4.5 input_tokens=7 cached_tokens=5;"
        "2 2 8 number=1 started_s=0 input_tokens=6 cached_tokens=0; number=2 failed=true",
    ),
    "AIPerf": (
        [
            f'{{"metrics": {{{_METRICS}}}}}',
            f'{{"metrics": {{{_METRICS}, "output_sequence_length": {{"value": 4}}}}}}',
            f"""{{"metadata": {{"request_start_ns": 2500000000}},
            "metrics": {{{_METRICS}, "input_sequence_length": {{"value": 6}}}}}}""",
            f'{{"metadata": {{"request_start_ns": 0}}, "metrics": {{{_METRICS}}}, "error": "gone"}}',
            '{"metrics": null}',
        ],
        "5e-6 7 3; 5e-6 7 4; 5e-6 7 3 started_s=2.5 input_tokens=6; started_s=0 failed=true; failed=true",
    ),
    "SGLang": (
        [
            _received("b"),
            _finished("a", ', "prompt_tokens": 8, "cached_tokens": 6'),
            _finished("b", ', "finish_reason": {"type": "stop"}'),
            _received("c"),
            _finished("d", ', "finish_reason": {"type": "abort"}'),
            _finished("e", ', "finish_reason": null'),
        ],
        "- 2 3; - 2 3 input_tokens=8 cached_tokens=6; failed=true; failed=true; - 2 3",
    ),
    "GuideLLM": ([_GUIDELLM], "1.5 7 3 input_tokens=6; 0.5 7 3 started_s=0; started_s=2 failed=true"),
    "a simulator's": (
        ["request id,output,latency,TTFT,arrival,input,cached\n3,7,2e9,5e8,0,9,4\n1,6,1e9,0,,,"],
        "0.5 2 7 number=3 started_s=0 input_tokens=9 cached_tokens=4; 0 1 6 number=1",
    ),
}


@pytest.mark.parametrize("name", RECORDS)
def test_each_format_gives_what_its_rows_have(tmp_path, name):
    """Every member of every request; blank lines between rows say nothing, and a missing member is unknown."""
    rows, expected = RECORDS[name]
    path = tmp_path / "log"
    lines = [" ".join(map(str.strip, row.splitlines())) if row[0] == "{" else row for row in rows]
    path.write_text("\n\n".join(lines) + "\n")
    for made, wanted in zip(logged_requests(path), logged(expected), strict=True):
        pairs = zip(astuple(made), astuple(wanted), strict=True)
        for one, other in pairs:
            both = [np.nan if each is None else float(each) for each in (one, other)]
            assert both[0] == pytest.approx(both[1], nan_ok=True), (made, wanted)


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
    """With requests as plain rows: paired by number, by the rank of their start, or by position in the log."""
    drawn, logged, order, pairing = case
    # simulated: (finished, arrival, wait, answer, tokens); real: (finished, TTFT, rest, tokens), as in the trace
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
        ("0,5,-1,2000000,1000000", "no output tokens"),
        ("0,5,nan,2000000,1000000", "no output tokens"),
        ("0,5,3,inf,1000000", "no latency"),
        ("0,5,3,2000000,nan", "no TTFT"),
        ("0,5,3,2000000,-7", "no TTFT"),
        ("0,-5,3,2000000,1000000", "no input tokens"),
    ],
)
def test_lengths_and_times_that_no_request_has_are_refused(tmp_path, row, said):
    (tmp_path / "log.csv").write_text(f"request id,input,output,latency,TTFT\n{row}\n")
    with pytest.raises(TraceError, match=f"log.csv: request 1: {said}"):
        read_request_log(tmp_path / "log.csv")
