"""Questions to a search for capacity and its answers, over rows by hand: choices by their definitions, each line."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.api.sizing import Capacity
from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.study.sizing import search
from kvcache_sim.extras.study.sizing.further import (
    DECODE,
    MACHINES,
    PREFILL,
    Further,
    Tried,
    groups_of,
    tried_of_row,
)
from kvcache_sim.extras.study.sizing.question import (
    Answer,
    Question,
    parse_attain,
    parse_limits,
    parse_rate,
    settings_text,
)
from kvcache_sim.extras.study.sizing.search import STEP
from kvcache_sim.extras.study.sizing.text import answer_text, candidate_table, draw
from kvcache_sim.extras.study.sweeps.cell import Cell, CellRecord
from kvcache_sim.metrics.slo import Limits, Objectives
from kvcache_sim.report.picture import NothingToDraw
from one_by_one import unwrapped
from support.examples import examples
from support.request_rows import rows as request_rows


def row(cell, rate, cost, machines=1, **more):
    """Return a candidate's row; names of further figures have __ for a dot."""
    own = {"cell": cell, "status": "ok", "error": "", "capacity.verdict": "found" if rate else "no rate",
           "capacity.rate_per_s": rate, "capacity.cost_per_hour": cost, "capacity.machines": machines,
           "capacity.judged": 900, "capacity.waits": 0, "capacity.is_few": False}  # fmt: skip
    return own | {name.replace("__", "."): value for name, value in more.items()}


# --- which candidate ---------------------------------------------------------------------------------------

_rates = st.none() | st.sampled_from((1.0, 2.0, 3.0, 8.0))
_candidates = st.lists(
    st.tuples(_rates, st.none() | st.sampled_from((0.5, 1.0, 4.0)), st.integers(1, 4)), max_size=6
)


@examples(200)
@given(_candidates, st.none() | st.sampled_from((0.5, 2.0, 3.0, 9.0)))
def test_the_cheapest_and_the_frontier_by_their_definitions(drawn, need):
    rows = tuple(row(n, *own, **{"set.x": n, "latency.tpot.avg": 9.0}) for n, own in enumerate(drawn))
    held = [(n, rate, cost, count) for n, (rate, cost, count) in enumerate(drawn) if rate is not None]
    priced = bool(held) and all(cost is not None for *_, cost, _ in held)
    answer, price = Answer(rows, need), {n: cost if priced else float(count) for n, _, cost, count in held}
    rate_of = {n: rate for n, rate, *_ in held}
    assert (answer.is_priced, [own["cell"] for own in answer.holding]) == (priced, list(rate_of))
    assert [answer.price(own) for own in answer.holding] == list(price.values())
    beaten = {
        n for n in price for m in price
        if price[m] <= price[n] and rate_of[m] >= rate_of[n] and (price[m], rate_of[m]) != (price[n], rate_of[n])
    }  # fmt: skip
    front = sorted(price.keys() - beaten, key=lambda n: (price[n], rate_of[n], n))
    assert [own["cell"] for own in answer.frontier] == front
    if need is None:
        best = min(price, key=lambda n: (price[n] / rate_of[n], n), default=None)
    else:
        able = [n for n in price if rate_of[n] >= need]
        best = min(able, key=lambda n: (price[n], -rate_of[n], n), default=None)
    assert (None if answer.cheapest is None else answer.cheapest["cell"]) == best
    made = answer.as_json({"asked": 1})
    assert [made[name] for name in ("asked", "need_per_s", "frontier", "cheapest")] == [1, need, front, best]
    assert made["cost_is"] == ("currency an hour" if priced else "machines")
    shown = [(own["settings"], own["rate_per_s"], own["latency.tpot.avg"]) for own in made["candidates"]]
    assert shown == [({"x": n}, rate, 9.0) for n, (rate, *_) in enumerate(drawn)]


def test_the_answer_in_python():
    rows = (row(0, 2.0, 4.0), row(1, 3.0, 4.0), row(2, 9.0, 8.0), row(3, None, 1.0))
    shown, asked = Capacity(rows, 0.99), Capacity(rows, 0.99, Answer(rows, 2.5))
    assert [shown.cheapest()["cell"], shown.cheapest(2.5)["cell"], asked.cheapest()["cell"]] == [2, 1, 1]
    assert [own["cell"] for own in shown.frontier] == [1, 2]
    assert (shown.cheapest(9.5), shown.rate_per_s, len(shown)) == (None, 9.0, 4)
    assert repr(shown) == "<Capacity of 4 candidates: at most 9 requests/s>"
    assert repr(Capacity(rows[3:], 0.99)) == "<Capacity of 1 candidates: none holds the limits>"


# --- the question ------------------------------------------------------------------------------------------


@examples(100)
@given(st.integers(-400, 400), st.integers(0, 60), st.sampled_from((0.5, 1.0, 7.3)))
def test_a_range_holds_the_steps_at_and_between_its_rates(low, more, own):
    """A rate just at a step includes it; a little above it, or below as the highest, leaves it out."""
    least, most = max(low, -350), min(low + more, 350)
    rates = [own * float(STEP**step) for step in (low, low + more)]
    if least > most:
        with pytest.raises(UsageError, match="no rate to try"):
            Question(0.9, *rates).steps(own)
        return
    assert Question(0.9, *rates).steps(own) == (least, most)
    assert Question(0.9, None, rates[1]).steps(own) == (-350, most)
    assert Question(0.9, rates[0]).steps(own) == (least, 350)
    if more > 1 and abs(low) < 300:
        assert Question(0.9, rates[0] * 1.001, rates[1] / 1.001).steps(own) == (low + 1, low + more - 1)


def test_a_range_without_a_step_is_refused():
    for least, most in ((5.01, 5.02), (5.0, 4.9)):
        with pytest.raises(UsageError, match="no rate to try"):
            Question(0.9, least, most).steps(1.0)
    with pytest.raises(UsageError) as refused:
        Question(0.9, 4e3).steps(2.0)
    assert (
        refused.value.expected
        == f"a range of 2 % or more within {2 * 1.02**-350:.4g}/s and {2 * 1.02**350:.4g}/s"
    )
    assert Question(0.9, 1.0, 1.0).steps(1.0) == (0, 0)
    assert Question.from_parameters({**Question(0.9, 1.0, 2.0).parameters()}) == Question(0.9, 1.0, 2.0)


@pytest.mark.parametrize(
    ("parse", "good", "bad"),
    [
        (parse_attain, {"99%": 0.99, " 100 % ": 1.0, "0.5%": 0.005}, ("0%", "100.1%", "99", "1e1%", "-1%")),
        (lambda text: parse_rate(text, "--need"), {"2.5/s": 2.5, " 7 /s": 7.0}, ("0/s", "2.5", "-1/s", "1e3/s")),
        (parse_limits, {"ttft=2s, tpot = 50ms": {"ttft": "2s", "tpot": "50ms"}, "e2e=1ns": {"e2e": "1ns"}},
         ("ttft", "ttft 2s", "ttft=", "itl=2s", "ttft=1s,ttft=1s", "ttft=0s", "ttft=2", "")),
    ],
)  # fmt: skip
def test_shares_rates_and_limits_as_they_are_written(parse, good, bad):
    assert {text: parse(text) for text in good} == good
    for text in bad:
        with pytest.raises(UsageError):
            parse(text)


# --- runs and candidates that are added --------------------------------------------------------------------


@pytest.mark.parametrize(("missed", "gives_up"), [(2, False), (3, True)])
def test_a_run_is_given_up_once_more_miss_than_may(missed, gives_up):
    """Of twelve measured prompts, four beyond the context of 8 are not judged; TTFT may be 10 ns."""
    measured = SimpleNamespace(contexts=np.array([8]), is_measured=lambda rows: rows["request"] < 12)
    misses = search._Misses(measured, Objectives(Limits(10)), 2 + 1e-6)
    late = [11] * missed + [10] * (8 - missed)
    part = request_rows(
        14, status=[0] * 8 + [1] * 6, input_tokens=[7] * 8 + [8] * 4 + [7] * 2, first_token_ns=late + [-1] * 6
    )
    if gives_up:
        with pytest.raises(search._SearchAborted):
            misses.take(part)
    else:
        misses.take(part)
    undecided = search._Misses(SimpleNamespace(is_measured=lambda rows: None), Objectives(Limits(10)), 0)
    undecided.take(part)


@pytest.mark.parametrize(("attained", "attains"), [(94, False), (95, True), (96, True)])
def test_a_rate_attains_at_just_the_share_that_is_asked_for(monkeypatch, attained, attains):
    """The interval is of requests that finished and are measured; the run is whole unless it is given up."""
    kept, watched = [], []
    own = {"slo": {"attainment": attained / 100}}
    made = SimpleNamespace(requests=request_rows(6, status=[0, 0, 1, 0, 0, 0], arrival_ns=[0, 1, 2, 3, 4, 5]))
    measured = SimpleNamespace(marks_ns=(3,), objectives="limits", is_inside=lambda rows: rows["request"] > 0)
    stand_ins = {
        "scale": lambda trace, speed: [speed] * 40, "measured_requests": lambda scenario, trace: measured,
        "Simulation": lambda settings, trace, options: SimpleNamespace(
            recorder=SimpleNamespace(watch=watched.append), run=lambda: made),
        "measured_summary": lambda scenario, run, of: (run, own, None), "arrival_rate": lambda run: 2.5,
        "with_cost": lambda scenario, summary: {**summary, "cost": 1}, "summarize_step_times": lambda scenario: {"x": 2},
        "rate_spread": lambda rows: kept.append(rows) or 1.5,
        "_Misses": lambda *given: SimpleNamespace(take=given),
    }  # fmt: skip
    for name, value in stand_ins.items():
        monkeypatch.setattr(search, name, value)
    probe = search.Probe(SimpleNamespace(settings=None), "trace", 0.95)
    found = probe.at(2)
    assert (found.attains, found.rate_per_s, found.spread, found.speed) == (attains, 2.5, 1.5, 2)
    assert found.summary == {**own, "cost": 1, "x": 2}
    assert kept[0]["arrival_ns"].tolist() == [1, 3, 4, 5]
    ((_, limits, allowed),) = watched
    assert (limits, allowed) == ("limits", pytest.approx(2, abs=1e-5))
    assert allowed > 2
    assert probe.at(2, whole=True).attains is attains
    assert (len(watched), probe.runs) == (1, 2)


def laid_out(settings):
    return [Cell(0, f"{n}", own, 0, 1.0) for n, own in enumerate(settings)]


def further(rates, need=3.0, unit=1, pools=False, shard=(1, 1), lay_out=laid_out):
    """Return the settings that are added to candidates of these settings, machines and rates."""
    cells = laid_out([settings for settings, _, _ in rates])
    records = {f"{n}": CellRecord(f"{n}", "ok", {"capacity": {"machines": count, "rate_per_s": rate}})
               for n, (_, count, rate) in enumerate(rates)}  # fmt: skip
    asked = Further(SimpleNamespace(shard=shard), lay_out, need, unit, pools, {})
    added = asked(cells, records)
    assert [cell.index for cell in added] == list(range(len(cells), len(cells) + len(added)))
    return [dict(cell.settings) for cell in added]


def test_candidates_are_added_by_group_splits_before_counts():
    def refused(settings):
        raise UsageError("no such scenario")

    def at(count, **more):
        return {MACHINES: count, **more}

    counts = [(at(1), 1, 1.0), (at(8), 8, 8.0)]
    assert further(counts) == [at(4)]
    assert (
        further(counts, need=None) == further(counts, shard=(1, 2)) == further(counts, lay_out=refused) == []
    )
    assert further([(at(n, x=x), n, n * x) for x in (1, 2) for n in (1, 8)]) == [at(4, x=1), at(4, x=2)]
    assert further([(at(2), 2, 2.0), (at(8), 8, 8.0)], unit=2) == [at(4)]
    assert further([({"x": 1}, 1, 1.0), ({"x": 1}, 8, 8.0)]) == [], "the number of machines is no setting"
    split = {PREFILL: 0, DECODE: 0}
    alone = [(at(4, **split), 4, 2.0)]
    tried = [(at(4) | {PREFILL: n, DECODE: 4 - n}, 4, rate) for n, rate in ((1, 3.0), (2, 2.0), (3, 1.0))]
    assert further(alone, pools=True) == [own for own, *_ in tried]
    fewer = [(at(2, **split), 2, 1.0), (at(2) | {PREFILL: 1, DECODE: 1}, 2, 1.0)]
    assert further([*alone, *tried, *fewer], pools=True) == [at(3) | split]
    cells = laid_out([own for own, *_ in counts])
    ended = {"0": CellRecord("0", "ok", {"capacity": {"machines": 1, "rate_per_s": 1.0}})}
    for failed in ({}, {"1": CellRecord("1", "failed", {})}):
        assert (
            Further(SimpleNamespace(shard=(1, 1)), laid_out, 3.0, 1, False, {})(cells, ended | failed) == []
        )


def test_candidates_in_groups():
    own = [{"x": 1, PREFILL: 1}, {"x": 1, PREFILL: 2}, {"x": 2}, {"x": 1}]
    tried = [Tried(settings, count, 1.0) for settings, count in zip(own, (4, 4, 4, 8), strict=True)]
    assert groups_of(tried, (PREFILL, DECODE)) == [tried[:2], tried[2:3], tried[3:]]
    assert groups_of(tried, (MACHINES, PREFILL)) == [[tried[0], tried[1], tried[3]], [tried[2]]]
    assert [one.prefill for one in tried] == [1, 2, 0, 0]
    found = tried_of_row(row(0, 2.5, None, 3, **{"set.x": 1, "set.pools.prefill": 2}))
    assert (found, found.prefill) == (Tried({"x": 1, PREFILL: 2}, 3, 2.5), 2)
    assert tried_of_row(row(0, None, None, 3)).rate_per_s is None


# --- the lines ---------------------------------------------------------------------------------------------

NO_RATE = {"capacity__attainment": 0.5, "capacity__lowest_tried_per_s": 0.01, "latency__ttft__p50": 900.0,
           "latency__ttft__p99": 2500.0, "latency__tpot__p99": None}  # fmt: skip
ODD = {
    "capacity__verdict": "not monotone",
    "capacity__holds_to_per_s": 1.0,
    "capacity__attains_to_per_s": 3.0,
}
FOUND = {
    f"capacity__{name}": value
    for name, value in {"attainment": 0.995, "below.attainment": 0.999, "below.rate_per_s": 1.94,
                        "above.attainment": 0.9, "above.rate_per_s": 2.1, "requests_low_per_s": 1.9,
                        "requests_high_per_s": 2.1}.items()
}  # fmt: skip
NEAREST = (
    "no rate attains 99 %: at 0.01 requests/s, the lowest tried, 50.00 % of requests are within their limits "
    "(TTFT p50 900 ms, p99 2.5 s; TPOT p99 -)"
)
ODD_TEXT = "attainment of 99 % is not monotone in the rate: every rate tried up to 1 requests/s attains, the highest that attains is 3 requests/s"
FEW = {"capacity__is_few": True, "capacity__judged": 100}
SOURCE = {
    "step_times__source": "a set",
    "step_times__factor_low": 0.9,
    "step_times__factor_high": 1.25,
    "capacity__is_few": False,
}


@pytest.mark.parametrize(
    ("rows", "more", "expected"),
    [
        ([row(0, 2.0, 1.0, **FOUND)], {},
         ["holds 2 requests/s (requests ±5 %) at 99 %: 99.50 % attained there, 99.90 % at 1.94 requests/s, 90.00 % at 2.1 requests/s"]),
        ([row(0, 2.0, 1.0, **ODD)], {}, [ODD_TEXT]),
        ([row(0, 2.0, 1.0, **ODD | {"capacity__holds_to_per_s": None})], {},
         [ODD_TEXT.replace("every rate tried up to 1 requests/s attains", "the lowest rate tried does not attain")]),
        ([row(0, None, 1.0, **NO_RATE)], {}, [NEAREST]),
        ([row(0, 9.0, 1.0, capacity__verdict="every rate", capacity__highest_tried_per_s=9.0)], {},
         ["every rate tried attains 99 %, up to 9 requests/s: raise --max-rate to find the capacity"]),
        ([row(0, None, None, status="failed", error="broken")], {}, ["not searched: broken"]),
        ([row(0, 9.0, 1.0, **FOUND, **FEW)], {}, [..., "note: only 100 requests are measured, 1 may miss: use a longer trace"]),
        ([row(0, 9.0, 1.0, **FOUND, **FEW | {"capacity__judged": 99})], {},
         [..., "note: only 99 requests are measured, none may miss: use a longer trace"]),
        ([row(0, 9.0, 1.0, **FOUND, capacity__waits=1200)], {},
         [..., "note: 1,200 requests wait for others (closed loop): think times scale with arrivals, and rates are measured arrivals"]),
        ([row(0, 9.0, 1.0, **FOUND, **SOURCE)], {"limits": {"ttft": "2s", "tpot": "50ms"}},
         [..., "step times: a set: ×0.90–1.25",
          "the rate if each step takes ×1.25: ask with --slo ttft=1.6s,tpot=40ms, and divide the rate by 1.25"]),
        ([row(0, 9.0, 1.0, **FOUND, **SOURCE)], {"limits": {"ttft": "2s"}, "need_per_s": 8.0},
         [..., ..., "the answer if each step takes ×1.25: ask with --slo ttft=1.6s --need 10/s"]),
        ([row(0, 9.0, 1.0, **FOUND, **SOURCE)], {}, [..., "step times: a set: ×0.90–1.25"]),
        ([row(0, 9.0, 1.0, **FOUND, **SOURCE | {"step_times__factor_high": 1.004})], {"limits": {"ttft": "2s"}},
         [..., "step times: a set: ×0.90–1.00"]),
        ([row(0, 2.0, 7.0, **ODD), row(1, 4.0, 7.2), row(2, None, 1.0, **NO_RATE)], {},
         [f"cell 0: {ODD_TEXT}", f"cell 2: {NEAREST}", "cheapest per request: cell 1, 4 requests/s for 7.2 an hour (without pools)"]),
        ([row(0, None, 1.0, **NO_RATE | {"capacity__attainment": 0.1}), row(1, None, 1.0, **NO_RATE)], {},
         [f"2 candidates attain no rate; nearest is cell 1: {NEAREST}", "no candidate holds any rate that was tried at 99 %"]),
        ([row(0, 2.0, 7.0), row(1, 4.0, 7.2)], {"need_per_s": 9.0}, ["no candidate holds 9 requests/s at 99 %"]),
        ([row(0, 2.0, None, 1), row(1, 4.0, None, 1, **FOUND, **{"set.x": "a", "set.pools.prefill": None})], {"need_per_s": 1.9},
         ["cheapest that holds 1.9 requests/s: cell 1, 4 requests/s (requests −52…−48 %) for 1 machine (x=a)"]),
        ([row(0, 2.0, None, 1), row(1, 4.0, None, 2, **FOUND)], {"need_per_s": 3.0},
         ["cheapest that holds 3 requests/s: cell 1, 4 requests/s (requests −52…−48 %) for 2 machines (without pools)",
          "not certain: 3 requests/s is within the interval of the requests, which begins at 1.9/s"]),
    ],
)  # fmt: skip
def test_each_answer_in_lines(rows, more, expected):
    said = unwrapped(answer_text(Answer(tuple(rows), **more), 0.99)).splitlines()
    said = said[len(said) - len(expected) :] if len(rows) > 1 else said
    assert len(said) == len(expected)
    assert [line for line, own in zip(said, expected, strict=True) if own is not ...] == [
        own for own in expected if own is not ...
    ]


def test_a_table_of_candidates():
    """Splits have one column, next to the machines that they split."""

    def pooled(cell, rate, count, prefill, **more):
        return row(cell, rate, 2.0 * count, count, **{"set.cluster.machines": count, "set.x": True, "set.pools.prefill": prefill,
                   "set.pools.decode": prefill and count - prefill, "cost.per_million_output_tokens": 3.0}, **more)  # fmt: skip

    rows = [pooled(0, 2.0, 4, None), pooled(1, None, 8, None), pooled(2, 3.0, 4, 1, **{"capacity.requests_low_per_s": 2.7, "capacity.requests_high_per_s": 3.3})]  # fmt: skip
    found = candidate_table(Answer(tuple(rows), pools=True))
    assert found.headings == (
        "cell",
        "cluster.machines",
        "x",
        "pools",
        "rate/s",
        "cost/h",
        "cost/M output tokens",
        "verdict",
        "frontier",
    )
    assert list(found.rows) == [
        ("0", 4, "true", "none", "2", "8", "3", "found", ""),
        ("2 *", 4, "true", "1+3", "3 ±10 %", "8", "3", "found", "front"),
        ("1", 8, "true", "none", "-", "-", "-", "no rate", ""),
    ]
    plain = candidate_table(Answer(tuple(rows)))
    assert plain.headings[1:5] == ("cluster.machines", "x", "pools.prefill", "pools.decode")
    assert [own[0] for own in plain.rows] == ["0", "1", "2 *"]
    unpriced = candidate_table(Answer((row(0, 2.0, None, 3), row(1, 4.0, None, 5))))
    assert unpriced.headings == ("cell", "rate/s", "machines", "frontier")
    assert list(unpriced.rows) == [("0", "2", "3", "front"), ("1 *", "4", "5", "front")]
    failed = candidate_table(Answer((row(0, 2.0, 1.0), {"cell": 1, "status": "failed"})))
    assert [own[-2] for own in failed.rows] == ["found", "failed"]
    assert (
        settings_text({"set.x": 1, "y": 2, "set.pools.prefill": 0, "set.pools.decode": 2})
        == "x=1, pools.decode=2"
    )


def test_the_picture_has_a_point_for_each_candidate_that_holds_a_rate():
    rows = (row(0, 2.0, 4.0, **{"set.x": 1}), row(1, None, 1.0), row(2, 1.0, 5.0))
    drawn = draw(Answer(rows), "a load")
    assert drawn.data == [
        {"cell": "0", "settings": "x=1", "rate": 2.0, "cost": 4.0, "front": "front"},
        {"cell": "2", "settings": "", "rate": 1.0, "cost": 5.0, "front": "none"},
    ]
    assert candidate_table(Answer(rows[:1])).headings[:2] == ("cell", "x")
    title = drawn.chart.to_dict(validate=False)["layer"][0]["encoding"]["x"]["title"]
    assert (title, drawn.subject) == ("cost an hour", "a load")
    assert isinstance(draw(Answer(rows[1:2])), NothingToDraw)
