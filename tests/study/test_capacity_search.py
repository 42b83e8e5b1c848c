"""The numbers of machines and the splits into pools that a search for capacity adds."""

import json
from itertools import pairwise

import kvcache_sim as kv
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cli.main import run
from kvcache_sim.extras.study.sizing.counts import count_sentences, next_count, smallest_holding
from kvcache_sim.extras.study.sizing.splits import best_split, next_splits, split_sentences
from one_by_one import ONE_BY_ONE, service_times, unwrapped, write_trace
from support.examples import examples


def search_counts(rates, grid, need, unit=1):
    """Return what the search tries, each count once, and the smallest that holds."""
    tried = {count: rates(count) for count in grid}
    while (count := next_count(tried, need, unit)) is not None:
        assert count not in tried
        assert count % unit == 0
        assert min(grid) < count < max(grid)
        tried[count] = rates(count)
    return tried, smallest_holding(tried, need)


@pytest.mark.parametrize("threshold", range(1, 66))
def test_bisection_finds_the_smallest_count_that_holds_for_every_threshold(threshold):
    """Counts from ``threshold`` on hold the rate."""
    for grid in ((1, 64), (4, 8, 16, 64), (2, 3, 64), (1,)):
        tried, found = search_counts(lambda n: 20.0 + n - threshold, grid, 20.0)
        if threshold > max(grid):
            assert found is None
            assert set(tried) == set(grid)
            continue
        assert found == max(threshold, min(grid))
        below = [b for a, b in zip((0, *grid), grid, strict=False) if a < threshold <= b]
        assert not below or found - 1 in tried or found == min(grid)
        assert found + 1 in tried or found == max(grid)
        assert len(tried) <= len(grid) + 7  # log2 of the widest gap, and the neighbor


@examples(200)
@given(st.integers(1, 9), st.lists(st.integers(1, 40), min_size=2, max_size=5, unique=True), st.floats(0, 45))
def test_counts_are_tried_in_whole_groups_and_holes_of_none_count_as_none(unit, grid, need):
    grid = [unit * count for count in grid]
    _, found = search_counts(lambda n: None if n // unit < 3 else n / unit, grid, need, unit)
    holding = [n for n in range(min(grid), max(grid) + 1, unit) if n // unit >= max(3, need)]
    assert found == min(holding, default=None)


def test_a_count_that_holds_less_than_a_smaller_one_is_named_beyond_a_step_of_the_search():
    """Rates of a search are 2 % apart."""
    assert len(count_sentences({10: 19.0, 11: 20.3, 12: 20.0}, 20.0)) == 2
    assert "(11 hold 21/s, 12 hold 18/s)" in count_sentences({10: 19.0, 11: 21.0, 12: 18.0}, 20.0)[-1]
    [unknown] = count_sentences({1: 2.0, 4: 8.0}, 20.0)
    assert "cluster.machines=4,13" in unknown


@examples(300)
@given(st.integers(2, 40), st.data())
def test_the_split_search_finds_the_one_maximum(count, data):
    """Rates rise strictly to a peak and fall strictly behind it; none at all beyond some distance."""
    peak = data.draw(st.integers(1, count - 1))
    slopes = data.draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    reach = data.draw(st.integers(1, 40))

    def rate(split):
        far = peak - split if split < peak else split - peak
        return None if far > reach else 1000.0 - far * slopes[split > peak]

    tried = {}
    first = {2: [1], 3: [1, 2], 4: [1, 2, 3], 9: [2, 4, 6], 16: [4, 8, 12]}
    assert {n: next_splits({}, n) for n in first} == first  # the quarters, as far as there are machines
    while splits := next_splits(tried, count):
        assert not set(splits) & set(tried)
        assert all(0 < split < count for split in splits)
        tried |= {split: rate(split) for split in splits}
    assert best_split(tried) == peak
    if reach == 40:
        assert len(tried) <= 3 + 2 * count.bit_length()


@pytest.mark.parametrize(
    ("without", "verdict"),
    [(10.0, "pools pay"), (15.0, "pools do not pay"), (12.1, "equal within"), (None, "pools pay")],
)
def test_the_verdict_on_pools_is_against_the_same_machines_without(without, verdict):
    assert verdict in split_sentences({1: 5.0, 2: 12.0, 3: 9.0}, without, 5)[0]


def test_the_smallest_number_of_machines_is_the_closed_form(tmp_path, monkeypatch, capsys):
    """Equal requests in turn to machines that serve one at a time: n machines hold n / service."""
    monkeypatch.chdir(tmp_path)
    path = write_trace(tmp_path / "t.jsonl", 240)
    alone, service = service_times(path)
    (tmp_path / "s.yaml").write_text(
        f"{ONE_BY_ONE}router: {{policy: round-robin}}\nmeasure: {{warmup: 12 requests}}\n"
    )
    need = 6.5 * 1e9 / service
    argv = ["capacity", str(path), "-c", "s.yaml", "--slo", f"ttft={alone}ns", "--attain", "100%", "-q"]
    argv += ["--grid", "cluster.machines=2,4,12", "--need", f"{need:.4f}/s", "-o", "out", "-j", "1"]
    assert run(argv) == 0
    said = unwrapped(capsys.readouterr().out)
    assert f"smallest number that holds {need:g} requests/s: 7 machines (6 hold " in said
    assert run(argv) == 0  # finished candidates are kept
    assert unwrapped(capsys.readouterr().out) == said
    assert len(list((tmp_path / "out" / "cells").glob("*.json"))) == 6
    assert len((tmp_path / "out" / "results.csv").read_text().splitlines()) == 7
    rates = {}
    asked = {"slo": {"ttft": f"{alone}ns"}, "attain": "100%", "need": f"{need:.4f}/s"}
    for row in kv.capacity(str(path), "s.yaml", grid={"cluster.machines": [2, 4, 12]}, **asked).rows:
        rates[row["capacity.machines"]] = row["capacity.rate_per_s"]
    assert set(rates) == {2, 4, 6, 7, 8, 12}
    for count, rate in rates.items():
        assert count * 1e9 / service / 1.021 <= rate <= count * 1e9 / service * (1 + 1e-6)


def test_the_split_is_that_of_an_exhaustive_search(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["trace", "generate", "few-shot", "--requests", "200", "--seed", "3", "-o", "t.jsonl"]) == 0
    common = ["t.jsonl", "--slo", "ttft=400ms,tpot=12ms", "--attain", "90%", "-q", "-j", "1"]
    common += ["--format", "json", "--set", "cluster.machines=6", "--set", "replica.max_num_seqs=16"]
    capsys.readouterr()
    assert run(["capacity", *common, "--pools", "auto", "-o", "auto"]) == 0
    found = json.loads(capsys.readouterr().out)["candidates"]
    tried = {own["settings"]["pools.prefill"]: own["rate_per_s"] for own in found}
    exhaustive = {}
    for split in range(1, 6):
        pools = ["--set", f"pools.prefill={split}", "--set", f"pools.decode={6 - split}"]
        run(["capacity", *common, *pools, "-o", f"split-{split}"])
        exhaustive[split] = json.loads(capsys.readouterr().out)["candidates"][0]["rate_per_s"]
    assert {own["step_times.source"] for own in found} == {"fitted set h100-llama-3.1-8b-tp1"}
    together = tried.pop(None)
    assert together is not None
    assert {split: exhaustive[split] for split in tried} == tried
    assert best_split(tried) == best_split(exhaustive)
    held = [exhaustive[split] or 0.0 for split in range(1, 6)]
    top = held.index(max(held))
    assert all(a <= b for a, b in pairwise(held[: top + 1]))  # one maximum: what the search assumes
    assert all(a >= b for a, b in pairwise(held[top:]))
