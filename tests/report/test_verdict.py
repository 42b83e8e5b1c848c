"""The verdict that opens a comparison: equal, better, uncertain, saturated and unlike runs, in every format."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import kvcache_sim as kv
import numpy as np
import pytest
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.report.compare import text
from kvcache_sim.report.compare.comparison import compare
from kvcache_sim.report.compare.printed import as_json, comparison_text
from kvcache_sim.report.compare.text import settings_line
from kvcache_sim.report.compare.verdict import verdict
from kvcache_sim.report.finished import open_runs
from kvcache_sim.report.headline import headlines
from support.fake_run import SCENARIO, request_columns, write_run

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


def saturate(run, arrived_per_s=20.0):
    run.summary["saturated"] = True
    run.summary["saturation"] = {
        "arrived_per_s": arrived_per_s,
        "sentence": "20 requests/s arrive, about 15/s would hold",
    }


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
