"""The figures, words and verdict of a comparison on numbers made by hand: each rule at its border."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.metrics.certainty import CERTAIN
from kvcache_sim.report import headline
from kvcache_sim.report.compare import comparison as comparing
from kvcache_sim.report.compare import text
from kvcache_sim.report.compare.comparison import Certainties, Comparison, Difference, States, certainties
from kvcache_sim.report.compare.model_ratio import ModelRatios, model_ratios
from kvcache_sim.report.compare.printed import as_json, comparison_text
from kvcache_sim.report.compare.samples import RATE, STATISTICS, common_requests, samples_of, statistics_of
from kvcache_sim.report.compare.verdict import ranking_difference, verdict
from kvcache_sim.report.curve.text import curve_csv
from kvcache_sim.report.headline import _FIGURES, Change, _change, headlines
from support.examples import examples

BY_METRIC = {one.metric: one for one in STATISTICS}
TTFT, QUEUE, OUTPUT, HITS = (
    BY_METRIC[name] for name in ("latency.ttft.p99", "latency.queue.avg", RATE, "cache.token_hit_rate")
)
MS = 1_000_000


def difference(statistic=TTFT, base=100.0, value=150.0, change=1.5, low=1.4, high=1.6):
    return Difference(statistic, base, value, change, low, high)


def compared(*differences, states=("", "", True, True), model=(), reason="", **own):
    made = Comparison("A", "B", differences, {}, 200, "request", 1, False, States(*states),
                      ModelRatios(dict(model), reason), Certainties((), {}))  # fmt: skip
    return replace(made, **own)


# -- samples


@st.composite
def finished(draw):
    count = draw(st.integers(1, 6))
    rows = {name: draw(st.lists(st.integers(low, high), min_size=count, max_size=count)) for name, low, high in (
        ("arrival_ns", 0, 5), ("wait", 0, 9), ("spoken", 0, 50), ("queue_ns", 0, 9), ("input_tokens", 1, 9),
        ("cached_prefix_length_used", 0, 9), ("output_tokens", 1, 4), ("within_slo", -1, 1))}  # fmt: skip
    rows["request"] = draw(st.permutations(range(count)))
    return {name: np.array(values, np.int64) for name, values in rows.items()}, draw(st.booleans())


@examples(60)
@given(finished(), st.sets(st.integers(0, 6)))
def test_the_figures_of_a_run_are_those_of_its_requests_one_by_one(drawn, chosen):
    rows, is_judged = drawn
    rows["first_token_ns"] = rows["arrival_ns"] + rows["wait"]
    rows["finish_ns"] = rows["first_token_ns"] + rows["spoken"]
    if not is_judged:
        del rows["within_slo"]
    every = [{name: int(column[k]) for name, column in rows.items()} for k in range(len(rows["request"]))]
    for only in (None, chosen):
        mine = sorted(
            (one for one in every if only is None or one["request"] in only),
            key=lambda one: (one["arrival_ns"], one["request"]),
        )
        found = samples_of(
            SimpleNamespace(finished=rows), None if only is None else np.array(sorted(only), int)
        )
        assert len(found) == len(mine)
        if not mine:
            continue
        assert statistics_of(found, found)[0].metric == (
            "slo.attainment" if is_judged else "latency.ttft.p99"
        )
        waits = [one["wait"] / MS for one in mine]
        paces = [
            round(one["spoken"] / (one["output_tokens"] - 1)) / MS for one in mine if one["output_tokens"] > 1
        ]
        span_s = (max(one["finish_ns"] for one in mine) - min(one["arrival_ns"] for one in mine)) / 1e9
        judged = [one["within_slo"] for one in mine if is_judged and one["within_slo"] >= 0]
        expected = {
            "latency.ttft.p99": np.percentile(waits, 99), "latency.ttft.p50": np.percentile(waits, 50), "latency.ttft.avg": np.mean(waits),
            "latency.tpot.avg": np.mean(paces) if paces else 0.0, "latency.e2e.avg": np.mean([(one["wait"] + one["spoken"]) / MS for one in mine]),
            "latency.queue.avg": np.mean([one["queue_ns"] / MS for one in mine]),
            RATE: sum(one["output_tokens"] for one in mine) / max(span_s, 1e-9),
            "cache.token_hit_rate": sum(one["cached_prefix_length_used"] for one in mine) / sum(one["input_tokens"] for one in mine),
            "slo.attainment": judged.count(1) / max(len(judged), 1),
        }  # fmt: skip
        for statistic in statistics_of(found):
            assert statistic.value(found) == pytest.approx(expected[statistic.metric]), statistic.metric
        ends = np.cumsum(sorted(found.columns["gap_s"]))
        assert ends[-1] == pytest.approx(span_s)
        assert found.columns["input"].tolist() == [one["input_tokens"] for one in mine]


def test_the_gap_of_a_request_is_the_time_since_the_last_end():
    rows = {name: np.array(own) for name, own in {
        "request": [0, 1, 2], "arrival_ns": [10, 20, 30], "finish_ns": [95, 40, 60], "first_token_ns": [30, 30, 40], "output_tokens": [1, 1, 2],
        "queue_ns": [0] * 3, "cached_prefix_length_used": [0] * 3, "input_tokens": [1] * 3}.items()}  # fmt: skip
    found = samples_of(SimpleNamespace(finished=rows))
    assert (found.columns["gap_s"] * 1e9).round().tolist() == [35, 30, 20]
    assert np.isnan(found.columns["tpot"]).tolist() == [True, True, False]
    assert found.chosen(np.array([2, 2])).columns["gap_s"].tolist() == [2e-8, 2e-8]


@pytest.mark.parametrize(
    ("change", "common"),
    [({}, [1, 3]), ({"request": [0, 1, 2, 4]}, None), ({"input_tokens": [1, 2, 3, 5]}, None), ({"output_tokens": [1, 1, 1, 2]}, None), ({"status": [0, 0, 0, 0]}, [1, 2, 3]), ({"status": [0, 1, 0, 0]}, [2, 3])],
)  # fmt: skip
def test_runs_are_paired_by_the_requests_that_finished_in_both(change, common):
    rows = {
        "request": [0, 1, 2, 3],
        "input_tokens": [1, 2, 3, 4],
        "output_tokens": [1] * 4,
        "status": [0, 0, 1, 0],
    }
    a, b = (
        {n: np.array(v) for n, v in own.items()} for own in ({**rows, "status": [1, 0, 0, 0]}, rows | change)
    )
    found = common_requests(SimpleNamespace(requests=a), SimpleNamespace(requests=b))
    assert (found if found is None else found.tolist()) == common


def test_only_latencies_and_attainment_depend_on_a_queue_that_grows():
    kinds = {one.metric: (one.is_share, one.is_latency, one.more_is_better) for one in statistics_of()}
    assert kinds.pop("slo.attainment") == (True, True, True)
    assert kinds.pop(RATE) == (False, False, True)
    assert kinds.pop("cache.token_hit_rate") == (True, False, True)
    assert set(kinds.values()) == {(False, True, False)}
    judged = SimpleNamespace(columns={"within_slo": None})
    assert statistics_of(judged, SimpleNamespace(columns={})) == STATISTICS


# -- changes and states


@pytest.mark.parametrize(
    ("statistic", "pairs", "base", "value", "change"),
    [(TTFT, [(10, 20), (20, 30)], 15, 25, 1.75), (TTFT, [(0, 20), (20, 30)], 10, 25, None), (HITS, [(0, 0.5), (0.5, 0.25)], 0.25, 0.375, 0.125),
     (TTFT, [(4, 2)], 4, 2, 0.5), (HITS, [(0.5, 0.25)], 0.5, 0.25, -0.25), (TTFT, [(0, 2)], 0, 2, None)],
)  # fmt: skip
def test_a_change_is_a_ratio_of_times_and_a_difference_of_shares(statistic, pairs, base, value, change):
    own = replace(statistic, value=lambda samples: float(samples))
    found = comparing._over_pairs(own, pairs)
    assert (found.baseline, found.value, found.change) == (base, value, change)
    if len(pairs) == 1:
        assert comparing._change(own, *pairs[0]) == change
        low = comparing._changes(own, *(np.array([float(one)]) for one in pairs[0])).tolist()
        assert low == [1.0 if change is None else change]
        assert (found.low, found.high) == (low[0], low[0])


@pytest.mark.parametrize(("statistic", "neutral"), [(TTFT, 1.0), (HITS, 0.0)])
@pytest.mark.parametrize(("low", "high", "is_clear"), [(-0.1, 0.0, False), (0.0, 0.1, False), (0.01, 0.1, True), (-0.1, -0.01, True), (-1, 1, False)])  # fmt: skip
def test_a_difference_is_clear_where_its_interval_excludes_none(statistic, neutral, low, high, is_clear):
    own = difference(statistic, change=neutral + 0.05, low=neutral + low, high=neutral + high)
    assert (own.neutral, own.is_clear) == (neutral, is_clear)
    assert not replace(own, change=None).is_clear


def test_the_interval_of_a_mean_is_that_of_its_replications():
    """Of two values, the mean of two draws is the lesser, the middle or the greater: a quarter, a half, a quarter."""
    assert comparing.mean_interval([3.0, 5.0]) == (3.0, 5.0)
    assert comparing.mean_interval([4.0]) == (4.0, 4.0)
    low, high = comparing.mean_interval([0.0] * 50 + [1.0] * 50)
    assert (low, high) == (pytest.approx(0.402, abs=0.02), pytest.approx(0.598, abs=0.02))


def run_of(rate=10.0, sentence=""):
    stored = {"sentence": sentence} | ({} if rate is None else {"arrived_per_s": rate})
    return SimpleNamespace(summary={"saturation": stored})


@pytest.mark.parametrize(
    ("rates", "same"),
    [((10, 10), True), ((1000.0, 1000.9), True), ((1000.0, 999.1), True), ((1000.0, 1002.0), False), ((1000.0, 998.0), False), ((None, None), True), ((None, 10), False), ((10, None), False)],
)  # fmt: skip
def test_loads_are_alike_within_a_thousandth(rates, same):
    sides = [[run_of(rate)] for rate in rates]
    assert comparing._states(*sides, "request", False) == ("", "", same, True)
    assert not comparing._states(*sides, "none", False).same_load


@pytest.mark.parametrize("asked", [True, False])
def test_a_side_is_saturated_if_one_of_its_replications_is(asked):
    sides = [run_of(), run_of(sentence="x"), run_of(sentence="y")], [run_of(), run_of()]
    assert comparing._states(*sides, "replication", asked) == ("x", "", True, asked)
    assert comparing._states(*sides[::-1], "replication", asked) == ("", "x", True, asked)
    assert comparing._states(sides[1], sides[1], "request", asked).rank_latency


def one_request(ttft_ms, cached, digest):
    rows = {"request": 0, "arrival_ns": 0, "first_token_ns": ttft_ms * MS, "finish_ns": 9 * MS * 2, "queue_ns": 0,
            "input_tokens": 10, "cached_prefix_length_used": cached, "output_tokens": 3}  # fmt: skip
    own = run_of()
    own.finished = {name: np.array([value], np.int64) for name, value in rows.items()}
    own.summary |= {"step_times": None, "certainty": None, "latency": {}}
    own.label, own.scenario, own.directory, own.trace = "A", {}, SimpleNamespace(), None
    own.manifest = {"argv": [], "digest": {"results": digest}}
    return own


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("digests", [(None, None), ("a", "a"), ("a", "b")])
def test_replications_are_paired_by_their_number_and_averaged(count, digests, monkeypatch):
    """Of times the mean of the ratios, none from zero on; of shares the mean of the differences."""
    monkeypatch.setattr(comparing, "common_requests", lambda first, second: np.array([0]))
    pairs = [((2, 1), (3, 4)), ((4, 2), (10, 2)), ((0, 3), (1, 9))][:count]
    sides = [[one_request(*pair[side], digests[side]) for pair in pairs] for side in (0, 1)]
    found = comparing.compare(*sides)
    paired = "request" if count == 1 else "replication"
    assert (found.paired_by, found.replications, found.requests) == (paired, count, 1)
    assert found.identical is (digests == ("a", "a"))
    by_metric = {own.statistic.metric: own for own in found.differences}
    ttft, hits = by_metric["latency.ttft.avg"], by_metric["cache.token_hit_rate"]
    assert (ttft.baseline, ttft.value, ttft.change) == ((2, 3, 1.5), (3, 6.5, 2), (2, 14 / 3, None))[
        count - 1
    ]
    shares = (hits.baseline, hits.value, hits.change)
    assert shares == pytest.approx(((0.1, 0.4, 0.3), (0.15, 0.3, 0.15), (0.2, 0.5, 0.3))[count - 1])


# -- the model and the certainty of two runs


def stored(p99, source="roofline", slow=None, fast=None, argv=(), label="A", ends=True):
    bounds = {"ttft_p99": {"slow": slow, "fast": fast}} if ends else None
    return SimpleNamespace(label=label, directory=SimpleNamespace(__truediv__=None), manifest={"argv": [*argv]},
                           summary={"step_times": source and {"source": source}, "certainty": bounds, "latency": {"ttft": {"p99": p99}}})  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "interval", "reason"),
    [({"slow": 20, "fast": 5}, {"slow": 30, "fast": 10}, (1.5, 2.0), ""), ({"slow": 20, "fast": 5}, {"slow": 30, "fast": 10, "source": "x"}, (0.5, 6.0), "the step times differ: errors are not shared"),
     ({"slow": 20, "fast": 5}, {"slow": None, "fast": 10}, None, ""), ({"slow": 0, "fast": 5}, {"slow": 1, "fast": 10}, None, ""), ({"slow": 20, "fast": 5}, {"slow": 0, "fast": 10}, (0.0, 2.0), ""),
     ({"slow": 20, "fast": None}, {"slow": 1, "fast": 10}, None, ""), ({"source": None}, {"source": None}, None, ""), ({"slow": 20, "fast": 5}, {"source": None, "ends": False}, None, "the step times differ: errors are not shared"),
     ({"ends": False, "argv": ("kvsim", "compare")}, {"slow": 1, "fast": 1}, None, "not computed"), ({"slow": 1, "fast": 1, "argv": ("kvsim", "compare")}, {"ends": False}, None, "not computed")],
)  # fmt: skip
def test_the_ratio_of_two_runs_at_the_bounds_of_the_model(first, second, interval, reason):
    found = model_ratios(stored(10.0, **first), stored(16.0, **second))
    assert found == ({} if interval is None else {"latency.ttft.p99": interval}, reason)


@pytest.mark.parametrize(
    ("sources", "lines"),
    [(("given", "given"), ("step times: given.",)), ((None, None), ()), (("given", None), ("A: step times: given.", "B: no time passes.")), (("roofline", "given"), ("A: step times: roofline: no error stated.", "B: step times: given."))],
)  # fmt: skip
@pytest.mark.parametrize("judged", [(True, True), (True, False), (False, True)])
def test_the_sources_of_two_runs_and_their_figures_with_intervals(sources, lines, judged):
    runs = [stored(10.0, source, label=label) for source, label in zip(sources, "AB", strict=True)]
    for run, has in zip(runs, judged, strict=True):
        ends = {f"{kind}_{end}": None for kind in ("requests", "model") for end in ("low", "high")}
        run.summary["certainty"] = {
            "ttft_p99": ends | ({"model_low": 9.0, "model_high": 11.0} if has else {})
        }
    found = certainties(*runs)
    assert found.sources == lines
    said = "TTFT p99: A 10 ms (model ±10 %), B 10 ms (model ±10 %)."
    assert found.values == ({"latency.ttft.p99": said} if all(judged) else {})


# -- words


@pytest.mark.parametrize(
    ("own", "words"),
    [(difference(), "B's TTFT p99 is 1.50 ± 0.10 times higher than A's (n = 200)."),
     (difference(change=0.5, low=0.4, high=0.625), "B's TTFT p99 is 2.00 ± 0.45 times lower than A's (n = 200)."),
     (difference(change=0.5, low=0.0, high=0.5), "B's TTFT p99 is 2.00 ± inf times lower than A's (n = 200)."),
     (difference(change=0.0, low=0.0, high=0.0), "B's TTFT p99 is infinitely many times lower than A's (n = 200)."),
     (difference(change=1.0, low=0.9, high=1.1), "TTFT p99: no difference beyond chance (1.00 ± 0.10 times higher; n = 200)."),
     (difference(change=None), "B's TTFT p99 is 150 ms; A's is 0."),
     (difference(OUTPUT, change=None), "B's output rate is 150 tokens/s; A's is 0."),
     (difference(QUEUE, change=0.99, low=0.9, high=1.0), "Mean queue time: no difference beyond chance (1.01 ± 0.06 times lower; n = 200)."),
     (difference(HITS, change=0.0005, low=0.0003, high=0.0007), "B's token hit rate is 0.1 ± 0.02 points higher than A's (n = 200)."),
     (difference(HITS, change=-0.1234, low=-0.2, high=-0.1), "B's token hit rate is 12.3 ± 5.0 points lower than A's (n = 200)."),
     (difference(HITS, change=0.0, low=0.0, high=0.0), "Token hit rate: no difference beyond chance (0 ± 0 points lower; n = 200).")],
)  # fmt: skip
def test_a_difference_in_words(own, words):
    assert text.sentence(compared(own), own) == words
    assert text.sentences(compared(own)) == [words]
    hidden = compared(own, states=("", "x", True, False))
    assert text.sentences(hidden) == ([] if own.statistic.unit == "ms" else [words])


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"identical": True}, "B and A are identical, request by request"), ({"differences": ()}, "No request finished in both B and A."), ({"requests": 1}, "Too few requests to compare B and A: 1 request, at least"),
     ({"requests": text.LEAST_COMPARED - 1}, f"Too few requests to compare B and A: {text.LEAST_COMPARED - 1} requests, at least {text.LEAST_COMPARED} needed."), ({"requests": text.LEAST_COMPARED}, None)],
)  # fmt: skip
def test_there_may_be_nothing_to_compare(changes, words):
    own = replace(compared(difference()), **changes)
    assert text.no_comparison(own).startswith(words or "")
    assert bool(text.no_comparison(own)) is bool(words)
    found = verdict(own)
    assert found.better == (None if words else "A")
    assert (found.difference is None) is bool(words)
    assert ("95 % interval over" in comparison_text(own)) is not bool(words)
    if words:
        assert text.sentences(own) == [text.no_comparison(own)] == [*found.sentences]


@pytest.mark.parametrize(
    ("paired_by", "words"),
    [("replication", "over 1,234 replications with common"), ("request", "over 200 requests, paired by request (block"), ("none", "over 200 requests, not paired: the traces differ (block")],
)  # fmt: skip
def test_how_runs_were_paired(paired_by, words):
    own = replace(compared(difference()), paired_by=paired_by, replications=1234)
    assert words in text.how_paired(own)
    unlike = "The runs served different requests." in verdict(own).sentences
    assert unlike is (paired_by == "none")


def test_the_numbers_as_tables():
    own = compared(difference(value=123_456.78904, change=1.234567, low=1.00004, high=12.34567),
                   difference(HITS, 0.12345678, 0.2, 0.0765432, 0.05, -0.00005), difference(OUTPUT, 0.0, 7.0, None, 1.0, 1.0))  # fmt: skip
    assert text.numbers_table(own).rows == (
        ("latency.ttft.p99", "ms", 100.0, 123_456.789, "ratio", 1.2346, 1.0, 12.3457),
        ("cache.token_hit_rate", "share", 0.1235, 0.2, "difference", 0.0765, 0.05, -0.0001),
        (RATE, "1/s", 0.0, 7.0, "ratio", None, 1.0, 1.0),
    )
    rows = text.terminal_table(own).rows
    assert [row[4:] for row in rows] == [
        ("×1.235", "×1 to ×12.3"),
        ("+0.0765", "+0.0500 to -0.0001"),
        ("–", "–"),
    ]
    assert rows[0][:4] == ("latency.ttft.p99", "ms", "100", "2.06 min")
    assert rows[2][0] == "output_tokens_per_s"
    hidden = text.terminal_table(replace(own, states=States("x", "", True, False))).rows
    assert [row[4:] for row in hidden] == [("–", "saturated: not ranked"), *(row[4:] for row in rows[1:])]
    (plain,) = as_json(
        [replace(own, settings={"a.b": (None, 3)}, model=ModelRatios({TTFT.metric: (0.5, 2.0)}, ""))]
    )
    assert plain["settings"] == {"a.b": ["–", "3"]}
    assert {name: [*numbers.values()][2:] for name, numbers in plain["numbers"].items()} == {
        TTFT.metric: [1.234567, "ratio", 1.00004, 12.34567, 0.5, 2.0], HITS.metric: [0.0765432, "difference", 0.05, -0.00005, None, None],
        RATE: [None, "ratio", 1.0, 1.0, None, None],
    }  # fmt: skip


# -- the verdict


@pytest.mark.parametrize(
    ("differences", "ranks", "ranking"),
    [([TTFT, OUTPUT], True, 0), ([TTFT, OUTPUT], False, 1), ([QUEUE, HITS], False, None), ([], True, None)],
)  # fmt: skip
def test_the_first_figure_that_both_have_ranks(differences, ranks, ranking):
    made = [difference(statistic) for statistic in differences]
    own = compared(*made, states=("", "x", True, ranks))
    assert ranking_difference(own) is (None if ranking is None else made[ranking])
    for gone in ({"change": None}, {"baseline": 0.0, "value": 0.0}):
        empty = compared(
            *[replace(made[0], **gone) for _ in made[:1]], difference(HITS), states=("", "", True, True)
        )
        assert ranking_difference(empty).statistic is HITS if made else True
    only = compared(replace(difference(), baseline=0.0), difference(HITS))
    assert ranking_difference(only) is only.differences[0]


@pytest.mark.parametrize(
    ("own", "states", "model", "better", "answer"),
    [(difference(), {}, (), "A", "A is better: B's TTFT p99 is 1.50 ± 0.10 times higher than A's."),
     (difference(change=0.5, low=0.4, high=0.6), {}, (), "B", "B is better: B's TTFT p99 is 2.00"),
     (difference(HITS, change=0.2, low=0.1, high=0.3), {}, (), "B", "B is better: B's token hit rate is 20.0"),
     (difference(HITS, change=-0.2, low=-0.3, high=-0.1), {}, (), "A", "A is better: B's token hit rate is 20.0"),
     (difference(low=0.9), {}, (), None, "No certain difference: B's TTFT p99 is 1.50 ± 0.35 times higher than A's, which may be chance."),
     (difference(), {}, {TTFT.metric: (0.9, 1.2)}, None, "No certain difference: B's TTFT p99 is 1.50 ± 0.10 times higher than A's, less than the model"),
     (difference(), {}, {TTFT.metric: (1.1, 1.2)}, "A", "A is better: "),
     (difference(OUTPUT), {"states": ("", "x", True, False)}, (), "A", "A is better: B is saturated; B's output rate is 1.50"),
     (difference(OUTPUT), {"states": ("x", "", True, False)}, (), "B", "B is better: A is saturated; B's output rate is 1.50"),
     (difference(OUTPUT), {"states": ("x", "", False, False)}, (), None, "No verdict: only A is saturated, and the loads differ."),
     (difference(OUTPUT), {"states": ("", "x", False, False)}, (), None, "No verdict: only B is saturated, and the loads differ."),
     (difference(OUTPUT), {"states": ("x", "y", False, False)}, (), "B", "B is better: B's output rate is 1.50"),
     (difference(), {"states": ("", "x", True, True)}, (), "A", "A is better: B's TTFT p99")],
)  # fmt: skip
def test_the_answer_and_its_reasons(own, states, model, better, answer):
    found = verdict(compared(own, model=model, **states))
    assert found.better == better
    assert found.sentences[0].startswith(answer)
    said, ranks = states.get("states", ("", "", True, True))[:2], states.get("states", (0, 0, 0, True))[3]
    expected = [f"{label} is saturated: {why}." for label, why in zip("AB", said, strict=True) if why]
    if expected and not ranks:
        expected.append(
            "Ranked by output rate, not by latency: that depends on the trace's length (--rank-saturated)."
        )
    requests = text.ratio_interval(own.statistic, own.low, own.high)
    more = (
        f", model {text.ratio_interval(own.statistic, *model[TTFT.metric])} (both runs at the same bound)"
        if model
        else ""
    )
    expected.append(f"Intervals of the {own.statistic.words}'s change: requests {requests}{more}.")
    assert [*found.sentences[1:]] == expected


def test_the_other_figures_are_sorted_into_better_and_worse():
    clear, up = {"low": 1.4, "high": 1.6}, {"change": 0.2, "low": 0.1, "high": 0.3}
    others = (
        difference(QUEUE, **clear),
        difference(OUTPUT, **clear),
        difference(HITS, **up),
        difference(BY_METRIC["latency.e2e.avg"], low=0.5),
    )
    first = difference()
    own = compared(first, *others)
    assert (
        verdict(own).sentences[-1]
        == "Other figures of B: better output rate, token hit rate; worse mean queue time."
    )
    assert not any("Other" in line for line in verdict(compared(first, others[3])).sentences)
    turned = compared(
        first, replace(others[0], change=0.5, low=0.4, high=0.6), model={QUEUE.metric: (0.4, 0.6)}
    )
    assert verdict(turned).sentences[-1] == "Other figures of B: better mean queue time."
    assert (
        "Other"
        not in verdict(replace(turned, model=ModelRatios({QUEUE.metric: (0.4, 1.0)}, ""))).sentences[-1]
    )
    hidden = compared(*others[1:3], others[0], states=("x", "x", True, False))
    assert verdict(hidden).sentences[-1] == "Other figures of B: better token hit rate."


@pytest.mark.parametrize(("interval", "reason", "said"), [(None, "", "×1.40–1.60." ), (None, "not computed", "×1.40–1.60, model not computed."), ((1.1, 2.0), "they differ", "×1.40–1.60, model ×1.10–2 (they differ).")])  # fmt: skip
def test_the_interval_of_the_model_or_its_absence(interval, reason, said):
    own = compared(difference(), model={} if interval is None else {TTFT.metric: interval}, reason=reason)
    sources = Certainties(("step times: x.",), {TTFT.metric: "TTFT p99: A 1, B 2.", QUEUE.metric: "no"})
    found = verdict(replace(own, certainty=sources)).sentences
    assert found[1] == "TTFT p99: A 1, B 2."
    assert found[2].endswith(
        said.replace("1.40", text._three(1.4))
        .replace("1.60", text._three(1.6))
        .replace("1.10", text._three(1.1))
    )
    assert found[3:] == ("step times: x.",)
    assert (
        verdict(compared(replace(difference(), change=None))).sentences[0]
        == "B and A are equal in every figure."
    )


# -- cards of a report, and the curve as CSV


@pytest.mark.parametrize(
    ("metric", "base", "value", "known", "ranked", "expected"),
    [
        ("latency.ttft.p99", None, 5.0, None, True, None), ("latency.ttft.p99", 5.0, None, None, True, None),
        ("latency.ttft.p99", 100.0, 150.0, (1.5, 1.4, 1.6), True, ("+50.0 %", "+40.0 to +60.0 %", False)),
        ("latency.ttft.p99", 100.0, 50.0, (0.5, 0.4, 0.6), True, ("−50.0 %", "−60.0 to −40.0 %", True)),
        ("latency.ttft.p99", 100.0, 150.0, (1.5, 0.9, 1.6), True, ("+50.0 %", "may be chance: −10.0 to +60.0 %", None)),
        ("latency.ttft.p99", 100.0, 150.0, (1.5, 1.4, 1.6), False, ("+50.0 %", "saturated: not ranked", None)),
        ("latency.ttft.p99", 100.0, 210.0, (None, 1.4, 1.6), True, ("+110 %", "one figure a run: no interval", False)),
        ("latency.ttft.p99", 100.0, 200.0, None, True, ("+100 %", "one figure a run: no interval", False)),
        ("latency.ttft.p99", 100.0, 200.75, None, True, ("+101 %", "one figure a run: no interval", False)),
        ("latency.ttft.p99", 0.0, 5.0, None, True, None), ("latency.ttft.p99", 5.0, 5.0, None, True, ("the same", "", None)),
        ("latency.ttft.p99", 100.0, 100.09, None, True, ("the same within 0.1 %", "", None)),
        ("latency.ttft.p99", 1000.0, 999.0, None, True, ("−0.1 %", "one figure a run: no interval", True)),
        ("cache.token_hit_rate", 0.25, 0.75, (0.5, 0.25, 0.625), True, ("+50.0 points", "+25.0 to +62.5 points", True)),
        ("slo.attainment", 0.0, 0.25, None, True, ("+25.0 points", "one figure a run: no interval", True)),
        ("cache.upper_bound_token_hit_rate", 0.5, 0.25, None, True, ("−25.0 points", "a property of the requests", False)),
        ("goodput.requests_per_s", 4.0, 2.0, None, True, ("−50.0 %", "one figure a run: no interval", False)),
    ],
)  # fmt: skip
def test_a_change_on_a_card(metric, base, value, known, ranked, expected):
    figure = next(one for one in _FIGURES if one.metric == metric)
    others = [difference(QUEUE), *([difference(BY_METRIC[metric], base, value, *known)] if known else [])]
    made = compared(*others, states=("", "", True, ranked))
    assert _change(figure, made, base, value) == (None if expected is None else Change(*expected))


@pytest.mark.parametrize("optional", [False, True])
def test_cards_have_the_figures_of_each_run_in_words(monkeypatch, optional):
    """A figure of prices or objectives that no run has is left out; any other that a run lacks reads "–"."""
    monkeypatch.setattr(headline, "upper_bound_of", lambda run: run.bound)
    monkeypatch.setattr(headline, "intervals_text", lambda summary, name: f"{name} of {len(summary)}")
    monkeypatch.setattr(headline, "_change", lambda figure, *given: (figure.metric, *given))
    first = {
        "cache": {"token_hit_rate": 0.5},
        "latency": {"ttft": {"p50": 2, "p99": 10_000}, "tpot": {"avg": 9999}},
        "throughput": {"output_tokens_per_s": 1234},
    }
    second = {"cost": {"per_million_tokens": 0.5}} if optional else {}
    runs = [SimpleNamespace(summary=first, bound=0.75), SimpleNamespace(summary=second, bound=None)]
    cards = headlines([SimpleNamespace(run=run) for run in runs], ["compared"])
    shown = {
        "cache.token_hit_rate": "50.0 %", "cache.upper_bound_token_hit_rate": "75.0 %", "latency.ttft.p50": "2 ms",
        "latency.ttft.p99": "10 s", "latency.tpot.avg": "9,999 ms", "throughput.output_tokens_per_s": "1,234 tok/s",
    }  # fmt: skip
    own = {"cost.per_million_tokens": ("–", "0.5")} if optional else {}
    assert {card.key: card.values for card in cards} == {
        key: (text, "–") for key, text in shown.items()
    } | own
    names = {figure.metric: name for name, figure in CERTAIN.items()}
    for card in cards:
        name = names.get(card.key)
        assert card.certain == (("", "") if name is None else (f"{name} of 3", f"{name} of {len(second)}"))
        assert card.changes[0] is None
        assert [change[:2] for change in card.changes[1:]] == [(card.key, "compared")]
    assert cards[1].changes[1][2:] == (0.75, None)


@pytest.mark.parametrize("every", [False, True])
def test_a_curve_as_csv(every):
    points = [
        {"capacity_blocks": 4, "capacity_bytes": 64, "lru": {"hit_blocks": 2, "block_hit_rate": 0.25}, "belady": {"hit_blocks": 3, "block_hit_rate": 0.375}},
        {"capacity_blocks": 8, "lru": {"hit_rate": 0.5}},
    ]  # fmt: skip
    document = {
        "block_size": 16,
        "kv_bytes_per_token": 1 if every else None,
        "points": points,
        "queried_blocks": 8,
    }
    corners = {"capacity_blocks": [3, 5], "hit_blocks": [1, 4]}
    found = curve_csv(document | {"every_capacity": corners} if every else document).splitlines()
    lru = ["lru,3,48,1,0.125", "lru,5,80,4,0.5"] if every else ["lru,4,64,2,0.25", "lru,8,,,0.5"]
    expected = [*lru, "belady,4,64,3,0.375"] if every else [lru[0], "belady,4,64,3,0.375", lru[1]]
    assert found == ["policy,capacity_blocks,capacity_bytes,hit_blocks,block_hit_rate", *expected]
    if not every:
        del document["kv_bytes_per_token"]
        without = curve_csv(
            {
                **document,
                "kv_bytes_per_token": None,
                "every_capacity": corners,
                "points": [],
                "queried_blocks": 0,
            }
        )
        assert without.splitlines()[1:] == ["lru,3,,1,1.0", "lru,5,,4,4.0"]
