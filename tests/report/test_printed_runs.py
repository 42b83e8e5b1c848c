"""Runs, explanations, comparisons and tables as they are printed: ``pytest --snapshot-update`` writes them anew."""

import pytest
from kvcache_sim.report.compare.comparison import compare
from kvcache_sim.report.explain.case import Case
from kvcache_sim.report.finished import open_runs
from kvcache_sim.report.headline import headlines
from kvcache_sim.report.plain_table import plain_table
from support.printed import overlong
from support.product.reports import draw, find_trace

RUNS = ("small", "large", "saturated", "tiered", "routed", "pools", "scaled", "tenants")
#: A hit, a miss, a request that was preempted; the turns of a session, the prefixes kept, the worst waits.
QUESTIONS = {
    "a hit": "RUN:tiered --request 35",
    "a miss": "RUN:small --request 0",
    "evicted": "RUN:small --request 35",
    "rejected": "RUN:pools --request 149",
    "session": "RUN:tiered --session s3",
    "prefixes": "RUN:tenants --prefixes",
    "worst": "RUN:tiered --worst 4",
    "between": "RUN:saturated --between 5s 9s --worst 3",
}
PAIRS = {
    "equal": "RUN:small RUN:same",
    "better": "RUN:small RUN:large --settings",
    "worse": "RUN:large RUN:tiered",
    "uncertain": "RUN:small RUN:a-little-larger",
    "one saturated": "RUN:small RUN:saturated",
    "saturated, ranked": "RUN:small RUN:saturated --rank-saturated",
    "unlike requests": "RUN:small RUN:tenants",
    "scenarios, repeated": "small.yaml large.yaml --repeats 3",
}
SIZES = "--grid;tiers.gpu.capacity=600 blocks,900 blocks,20000 blocks;-q;-j;1;--set;replica.max_num_seqs=8"
TABLES = {
    "sweep": f"sweep;--scenario;small.yaml;--repeats;1;{SIZES}",
    "cachesim": "cachesim;tenants.jsonl;--capacity;60;--policy;lru;--policy;fifo",
    "curve": "curve;tenants.jsonl;--policy;fifo",
}
PICTURES = "ttft ttft-by-tier tpot waterfall misses survival queue channels occupancy sessions machines fleet"


@pytest.mark.parametrize("name", RUNS)
def test_a_run(runs, snapshot, name):
    text = runs(name).with_suffix(".txt").read_text()
    assert not overlong(text)
    assert text == snapshot


def test_a_run_in_brief_and_with_its_intervals(say, snapshot):
    asked = ("simulate", "-c", "small.yaml", "-q", "-o", "again", "--sensitivity", "--format", "brief")
    assert say(*asked) == snapshot


@pytest.mark.parametrize("name", RUNS)
def test_an_explanation(say, snapshot, name):
    columns = 120 if name == "tiered" else 80
    text = say("explain", f"RUN:{name}", columns=columns)
    assert not overlong(text, columns)
    assert text == snapshot


@pytest.mark.parametrize("asked", QUESTIONS)
def test_an_answer_about_a_run(say, snapshot, asked):
    assert say("explain", *QUESTIONS[asked].split()) == snapshot


@pytest.mark.parametrize("sides", PAIRS)
def test_a_comparison(say, snapshot, sides):
    columns = 120 if sides == "worse" else 80
    text = say("compare", *PAIRS[sides].split(), columns=columns)
    assert not overlong(text, columns)
    assert text == snapshot


@pytest.mark.parametrize(("table", "columns"), [*((table, 80) for table in TABLES), ("sweep", 120)])
def test_a_table(say, snapshot, table, columns):
    output = ("-o", f"sweep-{columns}") if table == "sweep" else ()
    text = say(*TABLES[table].split(";"), *output, columns=columns)
    assert not overlong(text, columns)
    assert text == snapshot


@pytest.mark.parametrize("kind", PICTURES.split())
def test_the_numbers_of_a_picture(runs, snapshot, kind):
    """Of a run of three tiers; one that several machines served, and one of a fleet, where that is its subject."""
    names = {"machines": ["routed"], "fleet": ["scaled"]}.get(kind, ["tiered", "large"])
    opened = open_runs([runs(name) for name in names])
    for run in opened:
        assert find_trace(run) == ""
    picture = draw(kind, opened)
    assert f"{picture.title}\n{picture.definition}\n{plain_table(picture.table, 120)}" == snapshot


def shown(change) -> str:
    verdict = {None: "", True: " (better)", False: " (worse)"}
    return "no change" if change is None else f"{change.amount}{verdict[change.better]} {change.interval}"


def test_the_cards_of_a_report(runs, snapshot):
    opened = open_runs([runs(name) for name in ("small", "large", "a-little-larger")])
    comparisons = [compare(opened[:1], [run]) for run in opened[1:]]
    cards = headlines([Case(run) for run in opened], comparisons)
    lines = [" | ".join((card.key, *card.values, *map(shown, card.changes[1:]))) for card in cards]
    assert "\n".join(lines) == snapshot
