"""Cells of a sweep against the best: intervals over batches and seeds, equal cells, saturated cells, units."""

import csv
import math
import re
from pathlib import Path

import numpy as np
import pytest
from kvcache_sim.cli.main import run
from kvcache_sim.metrics.objectives import Objective
from kvcache_sim.report.ranking import against, merge_seeds, rank_cells
from kvcache_sim.report.ranking_text import verdict
from support.product.reports import batch_figures

P99, MEAN = "latency.ttft.p99", "latency.ttft.avg"
TPUT = "throughput.output_tokens_per_s"


def cell(number, value, batches=None, **more):
    own = {"cell": number, "status": "ok", "repeat": 0, "set.router.policy": f"router-{number}", P99: value}
    return {**own, "batches": {P99: batches} if batches else None, **more}


def left_out(value, effects):
    """Return the mean of ``value + effect`` over batches, without each batch in turn."""
    whole = [value + effect for effect in effects]
    return [(sum(whole) - one) / (len(whole) - 1) for one in whole]


COMMON = [3.0 * math.sin(n) for n in range(20)]
OWN = [0.4 * math.cos(3 * n) for n in range(20)]


def test_what_cells_share_in_a_batch_cancels():
    """Values vary by ±30 % from batch to batch, alike in both cells: a difference of 10 % is clear."""
    both = [cell(n, value, left_out(value, COMMON)) for n, value in enumerate((10.0, 11.0))]
    apart = against(both[0], both[1], P99)
    assert apart.value == pytest.approx(1.1)
    assert 1.0 < apart.low < 1.1 < apart.high
    assert not apart.is_equal
    alone = [cell(0, 10.0, left_out(10.0, COMMON)), cell(1, 11.0, left_out(11.0, [-c for c in COMMON]))]
    assert against(*alone, P99).is_equal


def test_the_half_width_is_that_of_a_mean_over_batches():
    """Differences of logarithms of the left-out means are, to first order, those of the batches' means."""
    rows = [cell(0, 1000.0, left_out(1000.0, [0.0] * 20)), cell(1, 1000.0, left_out(1000.0, OWN))]
    found = against(*rows, P99)
    expected = 2.093 * np.std(OWN, ddof=1) / math.sqrt(20) / 1000
    assert math.log(found.high / found.value) == pytest.approx(expected, rel=1e-2)
    assert math.log(found.value / found.low) == pytest.approx(expected, rel=1e-2)


def test_equal_cells_share_a_rank_and_the_others_are_in_order():
    noise = [[0.5 * math.sin(7 * n + 2 * k) for n in range(20)] for k in range(5)]
    values = (12.0, 10.0, 10.1, 15.0, 15.1)
    rows = [cell(k, value, left_out(value, noise[k])) for k, value in enumerate(values)]
    ranking = rank_cells(rows)
    assert [(one.row["cell"], one.rank) for one in ranking.order] == [(1, 1), (2, 1), (0, 3), (3, 4), (4, 4)]
    assert ranking.goal == Objective(P99, True)
    said = verdict(ranking)
    half = 2.093 * np.std(noise[1], ddof=1) / math.sqrt(20) / 10
    assert "cells 1 and 2 are equal" in said[0]
    assert f"10 ms (requests ±{100 * half:.1f} %) of cell 1" in said[0]


def test_shares_differ_by_points_and_zeros_have_no_ratio():
    name = "cache.token_hit_rate"
    rows = [cell(n, 5.0) | {name: rate} for n, rate in enumerate((0.5, 0.6))]
    for row in rows:
        row["batches"] = {name: left_out(row[name], [v / 100 for v in OWN]), P99: [0.0] * 20}
    ranking = rank_cells(rows)
    assert ranking.goal == Objective(name, False), "all have the same TTFT"
    found = ranking.order[1].against
    assert found.is_share
    assert found.value == pytest.approx(-0.1)
    half = 100 * 2.093 * np.std(OWN, ddof=1) / 100 / math.sqrt(20)
    assert f"the highest hit rate, 60.0 % (requests ±{half:.3g} points): " in verdict(ranking)[0]
    assert against(rows[0], rows[1], P99) is None


def test_five_seeds_are_compared_in_pairs():
    seeds = [10.0, 14.0, 9.0, 12.0, 11.0]
    rows = []
    for k, factor in enumerate((1.0, 1.03)):
        for r, value in enumerate(seeds):
            own = {"repeat": r, "set.router.policy": f"router-{k}", "set.seed": r or None}
            rows.append(cell(5 * k + r, value * factor, **own))
    merged, count = merge_seeds(rows)
    assert count == 5
    assert [row["cell"] for row in merged] == [0, 5]
    assert merged[0][P99] == pytest.approx(sum(seeds) / 5)
    found = against(*merged, P99)
    assert (found.low, found.value, found.high) == pytest.approx((1.03, 1.03, 1.03))
    assert [one.rank for one in rank_cells(rows).order] == [1, 2]
    rows[5][P99] = 9.0  # one pair the other way round
    assert [one.rank for one in rank_cells(rows).order] == [1, 1]
    assert "means of 5 seeds" in verdict(rank_cells(rows))[-1]


@pytest.mark.parametrize(
    ("pairs", "quantile"),
    [
        ([(1, 2), (1, 3)], 12.706),
        ([(2, 3), (2, 2), (5, 4)], 4.303),
        ([(n, n + 2 + n % 3) for n in range(2, 24)], 2.093),
    ],
)
def test_the_interval_over_seeds_is_students(pairs, quantile):
    """Ratios by the logarithms of each pair, and shares by their differences."""
    rates = "cache.token_hit_rate"
    rows = [
        {
            P99: 7.0,
            rates: 0.5,
            "seeds": {P99: [pair[k] for pair in pairs], rates: [pair[k] / 100 for pair in pairs]},
        }
        for k in (0, 1)
    ]
    for metric, changes in (
        (P99, [math.log(b / a) for a, b in pairs]),
        (rates, [(b - a) / 100 for a, b in pairs]),
    ):
        found = against(*rows, metric)
        half = quantile * np.std(changes, ddof=1) / math.sqrt(len(pairs))
        ends = [np.mean(changes) + k * half for k in (-1, 0, 1)]
        expected = ends if metric == rates else [math.exp(end) for end in ends]
        assert (found.low, found.value, found.high) == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize(("seeds", "saturated"), [((True, False), False), ((True, True, False), True)])
def test_settings_are_saturated_if_most_of_their_seeds_are(seeds, saturated):
    [merged], _ = merge_seeds([cell(0, 9.0, repeat=n, saturated=own) for n, own in enumerate(seeds)])
    assert merged["saturated"] is saturated


def test_saturated_cells_are_not_ranked_by_latency():
    own = {"saturated": True}
    all_full = [cell(0, 9e6, **own, **{TPUT: 500.0}), cell(1, 2e6, **own, **{TPUT: 400.0})]
    ranking = rank_cells(all_full)
    assert ranking.goal == Objective(TPUT, False)
    assert [one.row["cell"] for one in ranking.order] == [0, 1]
    assert any("all cells are saturated" in line for line in verdict(ranking))
    asked = rank_cells(all_full, [Objective(P99, True)])
    assert [one.row["cell"] for one in asked.order] == [1, 0]
    assert asked.saturated == ()
    rest = [cell(2, 50.0, saturated=False, **{TPUT: 600.0}), cell(3, 40.0, saturated=False, **{TPUT: 600.0})]
    some = rank_cells([*all_full, *rest])
    assert [(one.row["cell"], one.rank) for one in some.order] == [(3, 1), (2, 2), (0, 3), (1, 4)]
    assert (
        "cells 0 and 1 are saturated: they follow the others by throughput, not ranked by latency"
        in verdict(some)
    )


def test_figures_without_a_batch_are_those_of_the_other_requests():
    generator = np.random.default_rng(3)
    count = 1200
    arrival = np.sort(generator.integers(0, 10**11, count))
    rows = {
        "request": np.arange(count),
        "status": (generator.random(count) < 0.1).astype(np.int64),
        "arrival_ns": arrival,
        "first_token_ns": arrival + generator.integers(10**6, 10**9, count),
        "input_tokens": generator.integers(1, 5000, count),
        "output_tokens": generator.integers(1, 9, count),
    }
    rows["finish_ns"] = rows["first_token_ns"] + rows["output_tokens"] * 10**7
    rows["cached_prefix_length_used"] = rows["input_tokens"] // 3
    found = batch_figures(rows)
    done = [n for n in range(count) if rows["status"][n] == 0]
    batches = [[n for k, n in enumerate(done) if k * 20 // len(done) == b] for b in range(20)]
    for number, batch in enumerate(batches):
        rest = [n for n in done if n not in batch]
        ttft = [(rows["first_token_ns"][n] - rows["arrival_ns"][n]) / 1e6 for n in rest]
        long = [n for n in rest if rows["output_tokens"][n] > 1]
        tpot = [
            (rows["finish_ns"][n] - rows["first_token_ns"][n]) / 1e6 / (rows["output_tokens"][n] - 1)
            for n in long
        ]
        hit = sum(int(rows["cached_prefix_length_used"][n]) for n in rest)
        for name, value in (
            (MEAN, np.mean(ttft)),
            (P99, np.percentile(ttft, 99)),
            ("latency.ttft.p50", np.percentile(ttft, 50)),
            ("latency.tpot.avg", np.mean(tpot)),
            ("cache.token_hit_rate", hit / sum(int(rows["input_tokens"][n]) for n in rest)),
        ):
            assert found[name][number] == pytest.approx(value), name
    span_s = (max(rows["finish_ns"][done]) - arrival[done[0]]) / 1e9
    whole = sum(int(rows["output_tokens"][n]) for n in done) / span_s
    assert np.mean(found[TPUT]) == pytest.approx(whole)
    assert batch_figures({name: own[:40] for name, own in rows.items()}) == {}


# --- the verb ----------------------------------------------------------------------------------------------


def sweep(capsys, *arguments):
    capsys.readouterr()
    assert run(["sweep", *arguments, "-q", "-j", "1"]) == 0
    return capsys.readouterr().out.replace("\n  ", " ")


def table(directory):
    return list(csv.DictReader(Path(directory, "results.csv").read_text().splitlines()))


def test_generated_requests_have_five_seeds_where_kinds_are_compared(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    common = ["--set", "workload={kind: few-shot, requests: 60}", "--set", "cluster.machines=2"]
    routers = ["--grid", "router.policy=round-robin,longest-prefix"]
    said = sweep(capsys, *common, *routers, "-o", "five")
    assert "figures are means of 5 seeds; intervals are 95 % over these seeds, in pairs" in said
    assert re.search(r"^step times: .*: ×0\.\d+–1\.\d+$", said, re.M)
    rows = table("five")
    assert len(rows) == 10
    assert len({row["digest.results"] for row in rows if row["set.router.policy"] == "round-robin"}) == 5
    assert "batches" not in rows[0]
    values = [float(row[P99]) for row in rows if row["set.router.policy"] == "round-robin"]
    assert f"{sum(values) / 5:.3g} ms" in re.search(r"^0 .*$", said, re.M)[0]
    said = sweep(capsys, *common, *routers, "-o", "one", "--repeats", "1")
    assert "intervals are 95 % over 10 batches of time" in said
    assert len(table("one")) == 2
    sizes = ["--grid", "tiers.gpu.capacity=64 blocks,256 blocks"]
    sweep(capsys, *common, *sizes, "-o", "sizes")
    assert len(table("sizes")) == 2
