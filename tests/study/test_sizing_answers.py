"""Questions to a search for capacity, and which candidate answers them, by their definitions."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.api.sizing import Capacity
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.main import run
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
)
from kvcache_sim.extras.study.sizing.search import STEP
from kvcache_sim.extras.study.sizing.text import draw
from kvcache_sim.extras.study.sweeps.cell import Cell, CellRecord, Study
from kvcache_sim.extras.study.sweeps.plan import WHOLE, Plan, Shard
from kvcache_sim.report.picture import NothingToDraw
from support.examples import examples


def row(cell, rate, cost, machines=1, **more):
    """Return a candidate's row; a name of ``more`` is that of its column."""
    figures = {"rate_per_s": rate, "cost_per_hour": cost, "machines": machines, "judged": 900, "waits": 0}
    figures |= {"verdict": "found" if rate else "no rate", "is_few": False}
    own = {"cell": cell, "status": "ok", "error": ""}
    return own | {f"capacity.{name}": value for name, value in figures.items()} | more


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
    points = {n: (price[n], -rate_of[n]) for n in price}
    beaten = {
        n
        for n, own in points.items()
        if any(other != own and other[0] <= own[0] and other[1] <= own[1] for other in points.values())
    }
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
    with pytest.raises(UsageError, match="no rate to try"):
        Question(0.9, 4e3).steps(2.0)
    assert Question(0.9, 1.0, 1.0).steps(1.0) == (0, 0)
    assert Question.from_parameters({**Question(0.9, 1.0, 2.0).parameters()}) == Question(0.9, 1.0, 2.0)


RATE = partial(parse_rate, where="--need")
LIMITS = {"ttft=2s, tpot = 50ms": {"ttft": "2s", "tpot": "50ms"}, "e2e=1ns": {"e2e": "1ns"}}
NO_LIMITS = ("ttft", "ttft 2s", "ttft=", "itl=2s", "ttft=1s,ttft=1s", "ttft=0s", "ttft=2", "")


@pytest.mark.parametrize(
    ("parse", "good", "bad"),
    [
        (
            parse_attain,
            {"99%": 0.99, " 100 % ": 1.0, "0.5%": 0.005},
            ("0%", "100.1%", "99", "1e1%", "-1%"),
        ),
        (RATE, {"2.5/s": 2.5, " 7 /s": 7.0}, ("0/s", "2.5", "-1/s", "1e3/s")),
        (parse_limits, LIMITS, NO_LIMITS),
    ],
)
def test_shares_rates_and_limits_as_they_are_written(parse, good, bad):
    assert {text: parse(text) for text in good} == good
    for text in bad:
        with pytest.raises(UsageError):
            parse(text)


# --- candidates that are added -----------------------------------------------------------------------------


def laid_out(settings):
    return [Cell(0, f"{n}", own, 0, 1.0) for n, own in enumerate(settings)]


def further(rates, need=3.0, unit=1, pools=False, shard=WHOLE, lay_out=laid_out):
    """Return the settings that are added to candidates of these settings, machines and rates."""
    cells = laid_out([settings for settings, _, _ in rates])
    found = [{"capacity": {"machines": count, "rate_per_s": rate}} for _, count, rate in rates]
    records = {f"{n}": CellRecord(f"{n}", "ok", own) for n, own in enumerate(found)}
    plan = Plan("s", Study("m:f", ""), tuple(cells), shard)
    asked = Further(plan, lay_out, need, unit, pools, {})
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
        further(counts, need=None)
        == further(counts, shard=Shard(1, 2))
        == further(counts, lay_out=refused)
        == []
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
    plan = Plan("s", Study("m:f", ""), tuple(cells))
    for failed in ({}, {"1": CellRecord("1", "failed", {})}):
        assert Further(plan, laid_out, 3.0, 1, False, {})(cells, ended | failed) == []


def test_candidates_in_groups():
    own = [{"x": 1, PREFILL: 1}, {"x": 1, PREFILL: 2}, {"x": 2}, {"x": 1}]
    tried = [Tried(settings, count, 1.0) for settings, count in zip(own, (4, 4, 4, 8), strict=True)]
    assert groups_of(tried, (PREFILL, DECODE)) == [tried[:2], tried[2:3], tried[3:]]
    assert groups_of(tried, (MACHINES, PREFILL)) == [[tried[0], tried[1], tried[3]], [tried[2]]]
    assert [one.prefill for one in tried] == [1, 2, 0, 0]
    found = tried_of_row(row(0, 2.5, None, 3, **{"set.x": 1, "set.pools.prefill": 2}))
    assert (found, found.prefill) == (Tried({"x": 1, PREFILL: 2}, 3, 2.5), 2)
    assert tried_of_row(row(0, None, None, 3)).rate_per_s is None


# --- what is printed ---------------------------------------------------------------------------------------

CAPACITY = [
    "capacity",
    "--set",
    "workload={kind: few-shot, requests: 150}",
    "--attain",
    "98%",
    "-j",
    "1",
    "-q",
]
RUNS = {
    "one candidate": ["--slo", "ttft=60ms,tpot=12ms"],
    "no rate": ["--slo", "ttft=1ns"],
    "machines that hold a need": ["--slo", "ttft=60ms", "--grid", "cluster.machines=1,4", "--need", "30/s"],
    "prices": ["--slo", "ttft=60ms", "--grid", "replica.max_num_seqs=2,16", "--set", "cost.gpu_hour=2"],
    "pools": ["--slo", "ttft=400ms,tpot=12ms", "--set", "cluster.machines=2", "--pools", "auto"],
}


@pytest.mark.parametrize("name", RUNS)
def test_what_a_search_prints(tmp_path, monkeypatch, capsys, snapshot, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    code = run([*CAPACITY, *RUNS[name], "-o", "out"])
    said = capsys.readouterr().out
    assert f"exit code {code}\n{said}" == snapshot


def test_the_picture_has_a_point_for_each_candidate_that_holds_a_rate():
    rows = (row(0, 2.0, 4.0, **{"set.x": 1}), row(1, None, 1.0), row(2, 1.0, 5.0))
    drawn = draw(Answer(rows), "a load")
    assert drawn.data == [
        {"cell": "0", "settings": "x=1", "rate": 2.0, "cost": 4.0, "front": "front"},
        {"cell": "2", "settings": "", "rate": 1.0, "cost": 5.0, "front": "none"},
    ]
    assert isinstance(draw(Answer(rows[1:2])), NothingToDraw)
