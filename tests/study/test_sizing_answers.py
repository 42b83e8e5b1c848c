"""Questions to a search for capacity, and which candidate answers them, by their definitions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.main import run
from kvcache_sim.extras.study.sizing.further import DECODE, MACHINES, PREFILL, Further
from kvcache_sim.extras.study.sizing.question import Question
from kvcache_sim.extras.study.sizing.search import STEP
from kvcache_sim.extras.study.sweeps.cell import Cell, CellRecord, Study
from kvcache_sim.extras.study.sweeps.plan import WHOLE
from support.examples import examples
from support.product.sweeps import Answer, Plan, Shard


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
    cells = laid_out([at(n) for n in (1, 8, 9)])
    ended = {
        f"{n}": CellRecord(f"{n}", "ok", {"capacity": {"machines": m, "rate_per_s": m}})
        for n, m in ((0, 1), (1, 8))
    }
    plan = Plan("s", Study("m:f", ""), tuple(cells))
    for failed in ({}, {"2": CellRecord("2", "failed", {})}):
        assert Further(plan, laid_out, 3.0, 1, False, {})(cells, ended | failed) == []


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
