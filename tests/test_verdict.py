"""The verdict that opens a comparison: equal, better, uncertain, saturated and unlike runs, in every format."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import kvcache_sim as kv
import numpy as np
import pytest
from fake_run import SCENARIO, request_columns, write_run
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.report.compare import text
from kvcache_sim.report.compare.comparison import compare
from kvcache_sim.report.compare.printed import as_json, comparison_text
from kvcache_sim.report.compare.text import settings_line
from kvcache_sim.report.compare.verdict import is_certain, verdict
from kvcache_sim.report.finished import open_runs
from kvcache_sim.report.headline import headlines

SOURCE = {"source": "roofline", "error_percent": 30.0, "error_from": "x"}


def moved(columns, by_ns):
    own = {name: values.copy() for name, values in columns.items()}
    for name in ("queue_ns", "first_token_ns", "finish_ns"):
        own[name] += by_ns
    return own


@pytest.fixture
def sides(tmp_path):
    """Return opened runs whose summaries a test may change: A, A slower, A with noise, one of another trace."""
    columns = request_columns(1500)
    noise = np.random.default_rng(0).normal(0, 2e7, 1500).astype(int)
    made = {
        "A": write_run(tmp_path / "A", columns),
        "slower": write_run(tmp_path / "slower", moved(columns, 40_000_000), scenario=SCENARIO.replace("512GiB", "1TiB")),
        "noisy": write_run(tmp_path / "noisy", moved(columns, noise)),
        "unlike": write_run(tmp_path / "unlike", request_columns(900, seed=5), scenario="workload: {kind: diverse}\n"),
    }  # fmt: skip
    return {name: open_runs([directory])[0] for name, directory in made.items()}


def answer(sides, first, second, **options):
    return verdict(compare([sides[first]], [sides[second]], **options))


def store_bounds(run, slow, fast, source=SOURCE):
    """Store replays at the bounds whose latencies are ``slow`` and ``fast`` times those of the run."""
    ttft = run.summary["latency"]["ttft"]["p99"]
    run.summary["step_times"] = source
    ends = {f"{kind}_{end}": None for kind in ("requests", "model") for end in ("low", "high")}
    run.summary["certainty"] = {"ttft_p99": {**ends, "slow": ttft * slow, "fast": ttft * fast}}


def saturate(run, arrived_per_s=20.0):
    run.summary["saturated"] = True
    run.summary["saturation"] = {
        "arrived_per_s": arrived_per_s,
        "sentence": "20 requests/s arrive, about 15/s would hold",
    }


def test_the_better_run_is_named_whichever_side_it_is_on(sides):
    found = answer(sides, "A", "slower")
    assert found.better == "A"
    assert re.match(
        r"A is better: slower's TTFT p99 is 1\.\d+ ± 0\.\d+ times higher than A's\.$", found.sentences[0]
    )
    turned = answer(sides, "slower", "A")
    assert turned.better == "A"
    assert re.match(
        r"A is better: A's TTFT p99 is 1\.\d+ ± 0\.\d+ times lower than slower's\.$", turned.sentences[0]
    )
    assert any("worse TTFT p50, mean TTFT" in line for line in found.sentences)


def test_equal_runs_and_chance_have_no_better_run(sides):
    same = answer(sides, "A", "A")
    assert same.better is None
    assert "identical, request by request" in same.sentences[0]
    noisy = answer(sides, "A", "noisy")
    assert noisy.better is None
    assert noisy.sentences[0].startswith("No certain difference: noisy's TTFT p99 is ")


def test_errors_that_both_runs_share_cancel(sides):
    """Each run alone may be wrong by 60 %; their ratio is the same at both bounds."""
    for name in ("A", "slower"):
        store_bounds(sides[name], 1.6, 0.7)
    comparison = compare([sides["A"]], [sides["slower"]])
    ratio = comparison.differences[0].change
    low, high = comparison.model.intervals["latency.ttft.p99"]
    own = [sides[name].summary["latency"]["ttft"]["p99"] for name in ("A", "slower")]
    assert low == pytest.approx(own[1] / own[0]) == high
    assert ratio == pytest.approx(low, rel=0.02)
    assert verdict(comparison).better == "A"
    assert "(both runs at the same bound)" in " ".join(verdict(comparison).sentences)


def test_a_difference_that_the_model_can_turn_round_is_not_certain(sides):
    store_bounds(sides["A"], 1.6, 0.7)
    store_bounds(sides["slower"], 1.1, 0.75)
    found = answer(sides, "A", "slower")
    assert found.better is None
    assert "less than the model can be wrong by in the same direction for both" in found.sentences[0]


def test_sources_that_differ_share_no_error(sides):
    store_bounds(sides["A"], 1.2, 0.8)
    store_bounds(sides["slower"], 1.2, 0.8, SOURCE | {"source": "measured"})
    comparison = compare([sides["A"]], [sides["slower"]])
    low, high = comparison.model.intervals["latency.ttft.p99"]
    assert high / low == pytest.approx((1.2 / 0.8) ** 2)
    assert verdict(comparison).better is None
    assert "errors are not shared" in " ".join(verdict(comparison).sentences)


def test_runs_without_stored_bounds_name_the_command_that_computes_them(sides, tmp_path, monkeypatch, capsys):
    sides["A"].summary["step_times"] = sides["slower"].summary["step_times"] = SOURCE
    files = [f"{sides[name].directory}/scenario.yaml" for name in ("A", "slower")]
    assert f"'kvsim compare {files[0]} {files[1]}'" in " ".join(answer(sides, "A", "slower").sentences)
    monkeypatch.chdir(tmp_path)
    text = "workload: {kind: diverse, requests: 60, arrivals: {process: poisson, rate_per_s: 1}}\n"
    (tmp_path / "s.yaml").write_text(text)
    for name, slots in (("one", "2"), ("four", "8")):
        assert (
            kvsim(["simulate", "-c", "s.yaml", "--set", f"replica.max_num_seqs={slots}", "-q", "-o", name])
            == 0
        )
    capsys.readouterr()
    assert kvsim(["compare", "one", "four"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    (command,) = re.findall(r"not computed: '(kvsim compare [^']*)'", said)
    assert kvsim(command.split()[1:]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"one \S+ m?s \(requests [^)]*, model [^)]*\), four \S+ m?s \(requests", said)
    assert re.search(r"model ×[\d.]+–[\d.]+ \(both runs at the same bound\)", said)
    assert "step times: fitted set" in said


def test_saturated_runs_are_ranked_by_output_rate(sides):
    for name in ("A", "slower"):
        saturate(sides[name])
    comparison = compare([sides["A"]], [sides["slower"]])
    found = verdict(comparison)
    assert found.difference.statistic.metric == "throughput.output_tokens_per_s"
    assert found.better is None
    said = " ".join(found.sentences)
    assert "A is saturated: 20 requests/s arrive, about 15/s would hold." in said
    assert "--rank-saturated" in said
    shown = comparison_text(comparison)
    assert "TTFT p99" not in shown
    assert shown.count("saturated: not ranked") == 6
    asked = answer(sides, "A", "slower", rank_saturated=True)
    assert asked.better == "A"
    assert asked.difference.statistic.metric == "latency.ttft.p99"


def test_a_report_does_not_call_a_latency_of_saturated_runs_better(sides):
    for name in ("A", "slower"):
        saturate(sides[name])
    pair = [sides["A"], sides["slower"]]
    cases = [SimpleNamespace(run=run, reuse=None) for run in pair]
    cards = {card.key: card for card in headlines(cases, [compare(pair[:1], pair[1:])])}
    assert cards["latency.ttft.p99"].changes[1].interval == "saturated: not ranked"
    assert cards["latency.ttft.p99"].changes[1].better is None


def test_the_run_that_holds_the_load_is_better(sides):
    saturate(sides["slower"])
    sides["A"].summary["saturation"] = {"arrived_per_s": 20.0, "sentence": ""}
    found = answer(sides, "A", "slower")
    assert found.better == "A"
    assert found.sentences[0].startswith("A is better: slower is saturated; slower's output rate is ")
    sides["A"].summary["saturation"]["arrived_per_s"] = 10.0
    assert (
        answer(sides, "A", "slower").sentences[0]
        == "No verdict: only slower is saturated, and the loads differ."
    )


def test_the_first_figure_of_unlike_runs_is_in_the_first_lines(sides):
    comparison = compare([sides["A"]], [sides["unlike"]])
    assert len(comparison.settings) > 3
    lines = comparison_text(comparison).splitlines()
    assert any(re.search(r"\d\.\d+ ± ", line) for line in lines[:6])
    assert "The runs served different requests." in comparison_text(comparison)
    assert f"{len(comparison.settings)} settings differ: " in " ".join(lines[:12])
    assert "… (--settings shows all)." in " ".join(lines[:12])
    every = comparison_text(comparison, all_settings=True)
    assert all(name in every for name in comparison.settings)


def test_what_differs_in_a_long_value_is_not_cut(sides):
    """Values that begin alike keep their ends, others their beginnings."""
    base = compare([sides["A"]], [sides["unlike"]])
    for values, said in (
        (
            ("roofline:qwen3-32b@h200:tp2", "roofline:qwen3-32b@h200:tp2,kv-fp8"),
            "→ …ine:qwen3-32b@h200:tp2,kv-fp8.",
        ),
        (
            ("h100-llama-3.1-8b-tp1", "roofline:qwen3-32b@h200:tp2,kv-fp8"),
            "→ roofline:qwen3-32b@h200:tp2,k….",
        ),
    ):
        one = replace(base, settings={"replica.step_time": values})
        assert settings_line(one) == f"1 setting differs: replica.step_time {values[0]} {said}"


def test_the_settings_that_matter_most_are_named_first(sides):
    base = compare([sides["A"]], [sides["unlike"]])
    names = ["channels.pcie.bandwidth", "seed", "trace.path", "cache.policy", "tiers.cpu.capacity"]
    for count, said in (
        (0, None),
        (1, names[:1]),
        (2, ["seed", names[0]]),
        (5, ["tiers.cpu.capacity", "cache.policy", "trace.path"]),
    ):
        line = settings_line(replace(base, settings=dict.fromkeys(names[:count], ("a", "b"))))
        if said is None:
            assert line == "No setting differs."
            continue
        differ = "1 setting differs" if count == 1 else f"{count} settings differ"
        more = "; … (--settings shows all)" if count > 3 else ""
        assert line == f"{differ}: {'; '.join(f'{name} a → b' for name in said)}{more}."


def test_every_format_opens_with_the_verdict(sides, capsys):
    paths = [str(sides[name].directory) for name in ("A", "slower")]
    assert kvsim(["compare", *paths]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("A is better: ")
    assert kvsim(["compare", *paths, "--format", "json", "--rank-saturated"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["verdict"]["better"] == "A"
    assert found["verdict"]["ranked_by"] == "latency.ttft.p99"
    assert " ".join(found["verdict"]["sentences"]).startswith(first)
    assert found["saturated"] == [False, False]
    page = kv.compare(*paths)._repr_html_()
    assert page.index("A is better: ") < page.index("1 setting differs") < page.index("latency.ttft.p99")
    assert kv.compare(*paths).sentences[0].startswith("A is better: ")
    assert as_json([compare([sides["A"]], [sides["A"]])])[0]["verdict"]["better"] is None


@pytest.mark.parametrize(
    ("low", "high", "certain"), [(0.9, 1.0, False), (1.0, 1.1, False), (1.01, 1.1, True)]
)
def test_an_interval_of_the_model_that_ends_at_no_difference_is_not_certain(low, high, certain):
    comparison = SimpleNamespace(model=SimpleNamespace(intervals={"ttft": (low, high)}))
    difference = SimpleNamespace(statistic=SimpleNamespace(metric="ttft"), is_clear=True)
    assert is_certain(comparison, difference) is certain


@pytest.mark.parametrize(
    ("is_share", "low", "high", "said"),
    [
        (False, 0.4567, 0.9996, "×0.457–1.000"),
        (False, 1.0, 1.234, "×1–1.23"),
        (False, 12.34, 250.4, "×12.3–250"),
        (True, 0.012, -0.034, "+1.2…-3.4 points"),
    ],
)
def test_an_interval_of_a_change_in_words(is_share, low, high, said):
    assert text.ratio_interval(SimpleNamespace(is_share=is_share), low, high) == said


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [(99_999.4, "ms", "99,999"), (99_999.5, "ms", "100 s"), (99_999.5, "1/s", "100,000")],
)
def test_long_times_have_their_unit(value, unit, said):
    assert text._cell(value, unit) == said
    assert [text._ratio(ratio) for ratio in (0.99951, 9.9994, 10.04)] == ["0.9995", "9.999", "10"]
