"""The highest rate that attains: the search against every step, known service times, and the verb's edges."""

import json
import re
from fractions import Fraction
from pathlib import Path

import kvcache_sim as kv
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cli.main import run
from kvcache_sim.extras.study.sizing.search import Found, Probe, highest_attaining, rate_spread, speed_of
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions
from kvcache_sim.workload.toolbox.transforms import scale
from one_by_one import ONE_BY_ONE, service_times, unwrapped, write_trace
from support.examples import examples


@examples(300)
@given(st.integers(-400, 400), st.integers(-350, 350), st.integers(-350, 350))
def test_the_search_finds_the_last_step_that_attains(last, a, b):
    low, high = min(a, b), max(a, b)
    asked: list[int] = []

    def attains(step: int) -> bool:
        assert low <= step <= high
        asked.append(step)
        return step <= last

    found = highest_attaining(attains, low, high)
    assert found == Found(
        None if last < low else min(last, high), None if last >= high else max(last + 1, low)
    ) or (last < low and found.attains is None)
    assert len(asked) == len(set(asked)) <= 16


# --- the interval of a rate over requests ---


def test_few_requests_and_requests_at_once_have_no_interval():
    arrival_ns = np.arange(49) * 10**9
    assert rate_spread({"arrival_ns": arrival_ns, "finish_ns": arrival_ns + 1}) is None
    at_once = np.zeros(60, np.int64)
    assert rate_spread({"arrival_ns": at_once, "finish_ns": at_once + 1}) is None


# --- known service times -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [50, 200, 201])
def test_capacity_is_one_over_the_service_time(tmp_path, count):
    """Equal requests at equal distances, served one by one: none waits up to 1/service, all wait beyond."""
    path = write_trace(tmp_path / "t.jsonl", count)
    alone, service = service_times(path)
    limits = {"ttft": f"{alone}ns"}
    found = kv.capacity(
        str(path), {**scenario_settings(), "slo": limits}, attain="100%", measure={"warmup": "1 requests"}
    )
    (row,) = found.rows
    assert row["capacity.verdict"] == "found"
    best = 1e9 / service
    assert best / 1.02 * (1 - 1e-6) <= row["capacity.rate_per_s"] <= best
    step = max(k for k in range(-350, 350) if 1e9 / float(speed_of(k)) >= service)
    assert row["capacity.speed"] == pytest.approx(float(speed_of(step)), rel=1e-9)
    assert row["capacity.below.attainment"] == row["capacity.attainment"] == 1.0
    assert row["capacity.above.attainment"] < 1.0
    assert row["capacity.judged"] == count - 1
    assert row["capacity.is_few"] == (count <= 200)


def scenario_settings() -> dict:
    return {
        "cache": {"enabled": False, "block_size": 512},
        "replica": {"max_num_seqs": 1},
        "tiers": {"gpu": "1000 blocks"},
    }


def test_the_answer_is_confirmed_by_whole_runs_of_the_scaled_trace(tmp_path):
    trace = kv.generate("few-shot", seed=5, requests=400, arrivals={"process": "poisson", "rate_per_s": 8})
    settings = {
        "slo": {"ttft": "60ms", "tpot": "12ms"},
        "measure": {"warmup": "10%"},
        "replica": {"max_num_seqs": 24},
    }
    (row,) = kv.capacity(trace, **settings, attain="95%").rows
    assert row["capacity.verdict"] == "found"
    speed = Fraction(row["capacity.speed"]).limit_denominator(10**9)
    for factor, attains in ((Fraction(97, 100), True), (Fraction(1), True), (Fraction(105, 100), False)):
        share = kv.simulate(scale(trace, speed * factor), **settings).summary["slo"]["attainment"]
        assert (share >= 0.95) == attains
    span = (trace.arrival_ns.max() - trace.arrival_ns.min()) / 1e9
    assert row["capacity.rate_per_s"] == pytest.approx(399 / span * float(speed), rel=1e-6)


def test_a_run_that_is_given_up_would_not_have_attained():
    text = "workload: {kind: few-shot, requests: 300, arrivals: {process: poisson, rate_per_s: 8}}\nslo: {ttft: 40ms}\n"
    scenario = scenario_from_text(
        text + "replica: {max_num_seqs: 8}\nmeasure: {warmup: 10%, cooldown: 5%}", "s", None
    )
    trace = read_requests(scenario)
    aborted = 0
    for speed in (Fraction(1, 2), Fraction(1), Fraction(2), Fraction(5), Fraction(20)):
        probe = Probe(scenario, trace, 0.95)
        quick, whole = probe.at(speed), probe.at(speed, whole=True)
        assert quick.attains == whole.attains
        aborted += quick.summary is None
        if quick.summary is not None:
            assert quick.summary == whole.summary
    assert aborted


def test_any_number_of_workers_and_shards_give_one_answer(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    common = ["--set", "workload={kind: few-shot, requests: 150}", "--slo", "ttft=60ms", "--attain", "98%"]
    common += ["--grid", "cluster.machines=1,2", "--grid", "replica.max_num_seqs=8,16"]
    common += ["--set", "cost.gpu_hour=2"]
    documents = []
    for name, jobs in (("one", "1"), ("three", "3")):
        assert run(["capacity", *common, "-j", jobs, "-o", name, "-q", "--format", "json"]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    assert documents[0] == documents[1]
    for number in ("1/2", "2/2"):
        assert run(["capacity", *common, "--shard", number, "-j", "1", "-o", f"part-{number[0]}", "-q"]) == 0
    assert run(["sweep", "merge", "part-1", "part-2", "-o", "whole"]) == 0
    tables = {name: (tmp_path / name / "results.csv").read_bytes() for name in ("one", "three", "whole")}
    assert len(set(tables.values())) == 1
    found = documents[0]
    assert [own["settings"]["cluster.machines"] for own in found["candidates"]] == [1, 1, 2, 2]
    rates = [own["rate_per_s"] for own in found["candidates"]]
    assert rates[2] > 1.5 * rates[0]
    assert rates[3] > 1.5 * rates[1]
    verdicts = [own["verdict"] for own in found["candidates"]]
    assert set(verdicts) == {"found", "not monotone"}
    for own in found["candidates"]:  # what confirms the rate, or that it cannot be confirmed
        confirmed = own["below.attainment"] >= 0.98 > own["above.attainment"]
        is_found = own["verdict"] == "found"
        assert confirmed == is_found
        assert own["holds_to_per_s"] <= own["attains_to_per_s"]
        assert (own["requests_low_per_s"] is not None) == (own["requests_high_per_s"] is not None) == is_found
        price = own["cost_per_hour"] / 3600 / own["rate_per_s"] * 1e6
        assert own["cost_per_million_requests"] == pytest.approx(price)
    assert any(own["holds_to_per_s"] < own["attains_to_per_s"] for own in found["candidates"])
    assert found["cost_is"] == "currency an hour"
    assert found["cheapest"] in found["frontier"]


def test_a_rate_is_not_found_if_a_lower_one_fails():
    """Sixty requests on three machines: 3 % below the highest step that attains, one more of them misses."""
    trace = kv.generate("few-shot", seed=2, requests=60)
    settings = {"slo": {"ttft": "60ms"}, "replica": {"max_num_seqs": 12}, "cluster": {"machines": 3}}
    (row,) = kv.capacity(trace, attain="98%", **settings).rows
    assert row["capacity.below.attainment"] < 0.98 <= row["capacity.attainment"]
    assert row["capacity.above.attainment"] < 0.98
    assert row["capacity.verdict"] == "not monotone"
    assert row["capacity.requests_low_per_s"] is None


def test_models_are_candidates(tmp_path):
    """Two models asked for in turn, each on machines of its own, hold twice the rate of one machine's
    service."""
    path = write_trace(tmp_path / "t.jsonl", 100)
    alone, service = service_times(path)
    rows = [json.loads(line) | {"model": "ab"[n % 2]} for n, line in enumerate(path.read_text().splitlines())]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    limits = {"ttft": f"{alone}ns"}
    of = [{"a": {"machines": n}, "b": {"machines": n}} for n in (1, 2)]
    for machines, models in ((2, of[0]), (4, of[1])):
        found = kv.capacity(
            str(path),
            {
                **scenario_settings(),
                "slo": limits,
                "models": {"of": models},
                "cluster": {"machines": machines},
                "router": {"policy": "round-robin"},
            },
            attain="100%",
            measure={"warmup": "4 requests"},
        )
        (row,) = found.rows
        best = machines * 1e9 / service
        assert best / 1.021 <= row["capacity.rate_per_s"] <= best * (1 + 1e-6), machines


# --- edges -------------------------------------------------------------------------------------------------


def lines(capsys, *arguments, code=0):
    capsys.readouterr()
    assert run(["capacity", *map(str, arguments), "-q"]) == code
    said = unwrapped(capsys.readouterr().out.strip()).splitlines()
    return [line for line in said if not line.startswith(("step times: ", "the rate if ", "the answer if "))]


@pytest.mark.parametrize("length", [100_000, 2_048])
def test_prompts_beyond_the_context_hold_no_rate_down(tmp_path, monkeypatch, capsys, length):
    """A tenth of the prompts has 4,096 tokens: too long for one of the contexts, whatever the rate."""
    monkeypatch.chdir(tmp_path)
    row = '{"timestamp": %d, "input_length": %d, "output_length": 1, "hash_ids": %s}'
    sizes = [4096 if n % 10 == 0 else 512 for n in range(200)]
    rows = [row % (200 * n, size, [*range(9 * n, 9 * n + size // 512)]) for n, size in enumerate(sizes)]
    Path("t.jsonl").write_text("\n".join(rows))
    setting = f"replica.max_model_len={length}"
    (held,) = lines(capsys, "t.jsonl", "--slo", "ttft=2s", "--set", setting, "--max-rate", "200/s")[:1]
    assert re.match(r"(holds [\d.]+ requests/s|every rate tried attains 99 %, up to 199 )", held), held


@pytest.mark.parametrize(("late", "attains"), [(4, True), (5, True), (6, False)])
def test_a_rate_attains_at_just_the_share_that_is_asked_for(tmp_path, late, attains):
    """Of a hundred requests, served one by one, some come together with another one and wait for it."""
    path = write_trace(tmp_path / "t.jsonl", 100)
    alone, _ = service_times(path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for n in range(late):
        rows[2 * n + 1]["timestamp"] = rows[2 * n]["timestamp"]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = f"trace: {{path: {path}}}\nslo: {{ttft: {alone}ns}}\n{ONE_BY_ONE}"
    scenario = scenario_from_text(text, "s", tmp_path)
    probe = Probe(scenario, read_requests(scenario), 0.95)
    for whole in (False, True):
        assert probe.at(Fraction(1), whole).attains is attains
    assert probe.runs == 2


def test_the_interval_of_a_rate_is_of_requests_that_finished_and_are_measured(tmp_path):
    text = "workload: {kind: few-shot, requests: 300}\nslo: {ttft: 1h}\nmeasure: {warmup: 100 requests}\n"
    scenario = scenario_from_text(text, "s", tmp_path)
    trace = read_requests(scenario)
    found = Probe(scenario, trace, 0.95).at(Fraction(1))
    rows = execute(scenario, trace, RunOptions()).run.requests
    measured = {name: rows[name][100:] for name in ("arrival_ns", "finish_ns")}
    assert found.spread == pytest.approx(rate_spread(measured), rel=1e-9)
