"""Intervals from whole runs: the rule on drawn errors, runs left out, the printed coverage, a source's own."""

import json
import math
import re
import tomllib
from importlib.resources import files

import numpy as np
import pytest
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.extras.calibrate.coverage import LEAST_HELD, Topic, cell, judged
from kvcache_sim.model.run_errors import FIGURES, LOADS, RATE, Factors, Kind, MeasuredRun, measured_runs
from kvcache_sim.model.run_intervals import intervals_text, load_of_summary, model_interval
from kvcache_sim.model.run_rule import Rule, RunError, combined, interval_of
from kvcache_sim.model.step_times import step_time_names
from support.product.models import run_factors, source_kind, stated_step_errors, step_interval

KIND = Kind("drawn", "dense")


def a_run(error: float, name: str, queue: float = 0.1, deployment: str = "", **replays: tuple[float, ...]):
    """A run whose true times are exp(error) of the simulated ones."""
    values = dict.fromkeys(("ttft_mean", "tpot_mean"), (100 * math.exp(error), 100.0))
    return MeasuredRun(KIND, "set", deployment or name, name, queue, values, (0.5, 2.0), replays)


def drawn(seed: int, count: int, bias: float = 0.0, spread: float = 0.1) -> list[MeasuredRun]:
    draw = np.random.default_rng(seed)
    return [a_run(float(error), str(i)) for i, error in enumerate(draw.normal(bias, spread, count))]


@pytest.mark.parametrize("count", [6, 15, 40, 200])
@pytest.mark.parametrize("bias", [0.0, 0.3])
def test_runs_left_out_are_held_as_often_as_stated(count, bias):
    held = [one.held for seed in range(max(4, 600 // count)) for one in judged(drawn(seed, count, bias))]
    assert 0.86 <= np.mean(held) <= 0.98
    assert len(held) >= 600


def test_an_interval_leans_to_the_side_of_the_errors_and_holds_the_simulated_value():
    found = interval_of([RunError(error, "") for error in np.linspace(0.2, 0.4, 50)])
    assert found.low == pytest.approx(0.969, abs=0.001)
    assert 1.4 < found.high <= math.exp(0.4)
    few = interval_of([RunError(error, "") for error in (0.2, 0.3, 0.25)])
    assert few.low == pytest.approx(0.969, abs=0.001)
    assert few.high > math.exp(0.3)


def test_many_runs_of_one_deployment_do_not_drown_the_others():
    errors = [RunError(0.0, "often")] * 95 + [RunError(0.5, str(i)) for i in range(5)]
    assert interval_of(errors).high == pytest.approx(math.exp(0.5))
    assert interval_of([RunError(error, "one") for error, _ in errors]).high == pytest.approx(math.exp(0.031))


def test_a_run_left_out_does_not_move_its_own_interval():
    runs = drawn(2, 30)
    far = a_run(5.0, "far")
    [own] = [one for one in judged([*runs, far]) if one.run == far and one.figure == "tpot_mean"]
    assert own.factors == Rule(runs).figure(KIND, LOADS[0], "tpot_mean").factors
    assert not own.held
    assert own.error == pytest.approx(1 - math.exp(-5))


def test_runs_of_other_loads_and_families_count_only_where_there_are_too_few():
    near = [a_run(1.0, f"near {i}", queue=0.9) for i in range(2)]
    rule = Rule([*drawn(4, 20), *near])
    assert not rule.figure(KIND, LOADS[1], "tpot_mean").is_own
    rule = Rule([*drawn(4, 20), *near, a_run(1.1, "third", queue=0.5)])
    found = rule.figure(KIND, LOADS[1], "tpot_mean")
    assert (found.is_own, found.runs) == (True, 3)
    assert rule.figure(Kind("other", "dense"), LOADS[0], "tpot_mean") is None
    assert rule.figure(Kind("drawn", "dense", "other"), LOADS[0], "tpot_mean").runs == 20
    assert rule.figure(Kind("drawn", "moe"), LOADS[0], "tpot_mean").runs == 23


def test_replays_add_what_queues_make_of_an_error_of_steps():
    whole, steps = Factors(0.9, 1.1), Factors(0.8, 1.25)
    assert combined("ttft_mean", whole, steps, steps) == pytest.approx(whole)
    amplified = combined("ttft_mean", whole, steps, Factors(0.2, 5.0))
    assert 5 > amplified.high > 4.5
    assert combined("ttft_mean", whole, steps, Factors(1.0, 5.0)).low == pytest.approx(0.9)
    assert combined(RATE, whole, steps, steps).high == pytest.approx(
        math.exp(math.hypot(math.log(1.1), math.log(1.25)))
    )


def test_a_replay_is_read_between_the_factors_that_were_simulated():
    run = a_run(0.0, "open", ttft_mean=(0.25, 8.0))
    assert run.move("ttft_mean", 2.0) == pytest.approx(math.log(8))
    assert run.move("ttft_mean", math.sqrt(2)) == pytest.approx(math.log(8) / 2)
    assert run.move("ttft_mean", math.sqrt(0.5)) == pytest.approx(-math.log(2))
    assert run.move("tpot_mean", 1.3) == pytest.approx(math.log(1.3))


RUNS = measured_runs()
KNOWN = ("roofline:llama-3-8b@h100", "h100-llama-3.1-8b-tp1", "roofline:mixtral-8x7b@h100:tp2")


def test_every_group_of_measured_runs_says_where_it_is_from():
    given = tomllib.loads((files("kvcache_sim") / "model/data/run_errors.toml").read_text())
    for name, group in given.items():
        if name != "factors":
            assert all(group[key] for key in ("title", "origin", "licence", "about")), name
            assert set(group["figures"]) <= set(FIGURES)
    assert len(RUNS) == sum(g["rows"].strip().count("\n") + 1 for n, g in given.items() if n != "factors")


def test_the_kept_intervals_are_those_of_the_rule():
    assert (files("kvcache_sim") / "model/data/run_intervals.json").read_text() == intervals_text()


def test_the_stated_intervals_hold_the_truth_of_deployments_left_out(capsys):
    assert kvsim(["calibrate", "coverage", "--by", "deployment", "--format", "json"]) == 0
    said, found = json.loads(capsys.readouterr().out), list(judged(RUNS, "deployment"))
    assert said["held"] == pytest.approx(np.mean([one.held for one in found]))
    assert said["held"] >= LEAST_HELD
    assert said["figures"] == len(found)
    # A normal distribution gives 2.44; the goal of 3 is missed: few errors are far larger than the median one.
    assert cell(Topic("", "", "", "", ""), found).ratio == pytest.approx(3.32, abs=0.01)


def test_the_printed_coverage_of_runs_left_out(capsys, snapshot):
    assert kvsim(["calibrate", "coverage"]) == 0
    printed = capsys.readouterr().out
    assert float(re.search(r"^\s*([\d.]+)% of", printed, re.M)[1]) >= 90
    assert printed == snapshot


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("roofline:llama-3.1-70b@h100:tp8", Kind("roofline", "dense")),
        ("roofline:mixtral-8x7b@h100:tp2", Kind("roofline", "moe")),
        ("aiconfigurator:deepseek-v3@h200:sglang:tp8", Kind("kernel tables", "moe", "sglang")),
        ("h100-qwen3-32b-tp2", Kind("composed set", "dense")),
        ("b300-qwen3.6-35b-a3b-tp2", Kind("own iterations", "moe")),
        ("linear:base=5ms", None),
    ],
)
def test_a_source_has_a_kind_by_its_name(name, kind):
    assert source_kind(name) == kind


def test_every_packaged_set_has_intervals():
    for name in step_time_names():
        kind = source_kind(name)
        assert kind is not None
        for load in LOADS:
            assert set(run_factors(kind, load)) >= {"ttft_mean", "tpot_mean", "e2e_mean", "ttft_p99"}, name
        assert step_interval(kind).factors.high > 1


def test_the_model_interval_of_a_figure_combines_whole_runs_and_replays():
    kind = source_kind("roofline:llama-3-8b@h100")
    whole = run_factors(kind, LOADS[0])["ttft_mean"].factors
    steps = step_interval(kind).factors
    low, high = model_interval("ttft_mean", 10.0, 10 * steps.high, 10 * steps.low, [kind], LOADS[0])
    assert (low, high) == pytest.approx((10 * whole.low, 10 * whole.high))
    assert model_interval("ttft_mean", 10.0, 90.0, 9.0, [kind], LOADS[0])[1] > 89
    assert model_interval("ttft_mean", 10.0, 12.0, 9.0, [None], LOADS[0]) == (9.0, 12.0)
    moe = source_kind("roofline:mixtral-8x7b@h100:tp2")
    wide = model_interval("ttft_mean", 10.0, 11.0, 9.0, [kind, moe], LOADS[0])
    assert wide[1] == pytest.approx(10 * run_factors(moe, LOADS[0])["ttft_mean"].factors.high)


def test_no_bound_equals_the_value_itself():
    """Two runs of one configuration differ too, so neither side of an interval ends at 1."""
    stated_by_kind = json.loads(intervals_text())
    assert "sglang h200" in stated_by_kind.pop("measured")
    for name, stated in stated_by_kind.items():
        for figure, (low, high, *_) in {**stated["low"], **stated["near capacity"]}.items():
            least = 0.06 if figure.startswith("ttft") else 0.03
            assert low <= 1 - least, (name, figure)
            assert high >= 1 + least, (name, figure)


def test_a_rate_below_the_knee_has_the_error_of_the_knee():
    """No source knows where the knee is: the routing study's rates were up to 15 % lower at low load."""
    rates = [run_factors(source_kind(name), LOADS[0])[RATE].factors for name in KNOWN]
    assert len(set(rates)) == 1
    assert rates[0].low < 0.9


@pytest.mark.parametrize("by", ["gpu", "engine"])
def test_coverage_leaves_out_a_whole_gpu_or_engine(by, capsys):
    assert kvsim(["calibrate", "coverage", "--by", by, "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["left_out"] == by
    assert said["held"] >= 0.83
    alone = [a_run(0.1 * n, str(n)) for n in range(6)]
    assert not list(judged(alone, by)), "nothing is left to judge them by"


def test_a_finished_run_has_a_load():
    assert load_of_summary({"latency": {"ttft": {"avg": 100.0}, "queue": {"avg": 50.0}}}) == LOADS[1]
    assert load_of_summary({"latency": {"ttft": {"avg": 100.0}, "queue": {"avg": 49.0}}}) == LOADS[0]
    assert load_of_summary({}) == LOADS[0]


H100 = (files("kvcache_sim") / "model/data/gpus/h100.toml").read_text()


@pytest.mark.parametrize(
    ("kv", "mixed", "expected"),
    [
        (2, 3, (0.8 / 1.5, 2.4 / 1.5)),
        (2, 1, (1.0, 4.8)),
        (2, 8, (0.2, 1.0)),
        (2, 0, (0.8, 2.4)),
        (0, 2, (0.8, 2.4)),
        (0, 0, (0.8, 2.4)),
    ],
)
def test_an_assumed_cost_of_kv_in_mixed_steps_has_the_range_of_its_gpu(tmp_path, kv, mixed, expected):
    """No row with a chunk was held out, and the GPU's kernels take 0.8 to 2.4 times as long in steps with one."""
    own = "mixed_kv_range = [0.8, 2.4]"
    text = re.sub("^(memory_bytes|names) .*\n", "", H100, flags=re.M)  # the reported memory stands
    (tmp_path / "g.toml").write_text(re.sub("^mixed_kv_range.*", own, text, flags=re.M))
    lines = [f'model = "llama-3-8b"\ngpu = "{tmp_path / "g.toml"}"\n[held_out.decode]\nmape_percent = 1.0']
    lines += ["[coefficients]", "weights_ms = 5.0", "token_ms = 0.1", "exponent = 1.0"]
    lines += [f"kv_ms_per_thousand = {kv}"] * (kv > 0) + [f"kv_mixed_ms_per_thousand = {mixed}"] * (mixed > 0)
    (tmp_path / "set.toml").write_text("\n".join(lines))
    assert stated_step_errors(str(tmp_path / "set.toml")).mixed_kv == pytest.approx(expected)


def test_what_a_model_leaves_open_by_hand():
    assert model_interval("ttft_mean", 0.0, 3.0, -1.0, [], "low") == (-1, 3)
    assert model_interval("ttft_mean", 2.0, 3.0, 1.0, [None], "low") == (1, 3)
    assert model_interval("ttft_mean", 2.0, 1.5, 3.0, [], "low") == (1.5, 3)
    kinds = [source_kind(name) for name in ("roofline:llama-3.1-8b@h100", "h100-llama-3.1-8b-tp1")]
    replayed = Factors(0.5, 1.5)
    own = []
    for kind in kinds:
        whole, steps = run_factors(kind, "low")["ttft_mean"].factors, step_interval(kind).factors
        own.append(combined("ttft_mean", whole, steps, replayed))
    for chosen in ([0], [1], [0, 1], [1, 0]):
        low, high = model_interval("ttft_mean", 2.0, 3.0, 1.0, [kinds[k] for k in chosen], "low")
        assert low == pytest.approx(2 * min(own[k].low for k in chosen))
        assert high == pytest.approx(2 * max(own[k].high for k in chosen))
    assert model_interval("ttft_mean", 2.0, 3.0, 0.0, kinds, "low")[1] == pytest.approx(3)
