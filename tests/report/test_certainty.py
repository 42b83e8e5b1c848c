"""Certainty of a run's figures: two intervals, the rule that combines errors, and the one printed form."""

import json
import math

import numpy as np
import pytest
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.metrics.certainty import CERTAIN, figure_text, source_line
from kvcache_sim.metrics.request_intervals import LEAST_REQUESTS, request_intervals
from kvcache_sim.metrics.resampling import drawn_blocks
from kvcache_sim.model.run_errors import LOADS
from kvcache_sim.model.stated_errors import Factors
from kvcache_sim.report.intervals.assumption import Assumption
from kvcache_sim.report.intervals.together import loading_share, together
from support.printed import normalized, printed
from support.product.models import run_factors, source_kind
from support.sensitivity_runs import SET
from support.shared_files import ROOT

ROWS = [(n * 600, 2048 + 512 * (n % 5), 30, [9 * n + k for k in range(4 + n % 5)]) for n in range(40)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a trace, a set that states its errors, and scenarios."""
    home = tmp_path_factory.mktemp("certainty")
    keys = ("timestamp", "input_length", "output_length", "hash_ids")
    rows = [dict(zip(keys, row, strict=True)) for row in ROWS]
    (home / "trace.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (home / "set.toml").write_text(SET.format(weights=5.0, token=0.01))
    tiers = "tiers: {gpu: {capacity: unbounded}}"
    for name, replica in {
        "fitted": "step_time: set.toml",
        "roofline": "step_time: 'roofline:llama-3-70b@h100:tp8'",
        "linear": "step_time: 'linear:base=1ms,token=1us'",
        "instant": "instant: true",
    }.items():
        text = f"trace: {{path: trace.jsonl}}\nreplica: {{{replica}}}\n{tiers}\n"
        (home / f"{name}.yaml").write_text(text)
    return home


def simulated(folder, name, run, *options):
    """Simulate a scenario of the folder and return its summary."""
    target = folder / run
    assert (
        kvsim(["simulate", "-c", str(folder / f"{name}.yaml"), "-o", str(target), "--force", *options]) == 0
    )
    return json.loads((target / "summary.json").read_text())


# -- the rule that combines errors


def assumption(high, kind="step", error="", low=None, name="a"):
    factors = Factors(1 / high if low is None else low, high)
    return Assumption(f"{name}{high}{kind}", factors, "", True, lambda s, _: s, True, kind, error)


def test_independent_errors_of_equal_effect_move_by_their_share_of_the_sum_of_squares():
    found = [assumption(1.2, name="a"), assumption(1.5, name="b"), assumption(2.0, name="c")]
    logs = [math.log(1.2), math.log(1.5), math.log(2.0)]
    length = math.sqrt(sum(s * s for s in logs))
    slow = [factor for _, factor in together(found, slow=True, loading=0.0)]
    assert slow == pytest.approx([math.exp(s * s / length) for s in logs])
    assert [factor for _, factor in together(found, False, 0.0)] == pytest.approx([1 / f for f in slow])
    total = sum(math.log(factor) for factor in slow)
    assert total == pytest.approx(length), "the sum of the moves is the 90 % bound of the sum of the errors"


def test_one_assumption_alone_stays_at_its_bound_and_those_of_one_error_move_as_one():
    assert together([assumption(1.4)], True, 0.0)[0][1] == pytest.approx(1.4)
    pair = [assumption(1.4, error="x", name="a"), assumption(1.4, error="x", name="b")]
    assert [factor for _, factor in together(pair, True, 0.0)] == pytest.approx([1.4, 1.4])


def test_links_that_no_request_waits_for_leave_the_steps_at_their_bound():
    found = [assumption(1.1), assumption(1.5, "link")]
    (_, step), (_, link) = together(found, True, 0.0)
    assert (step, link) == (pytest.approx(1.1), 1.0)
    (_, step), (_, link) = together(found, True, 1.0)
    assert (step, link) == (pytest.approx(1.1), pytest.approx(1.5))


def test_a_cost_that_is_part_of_a_step_counts_as_a_fifth_of_it():
    found = [assumption(1.2), assumption(2.0, "step part")]
    whole, part = math.log(1.2), 0.2 * math.log(2.0)
    length = math.hypot(whole, part)
    expected = [1.2 ** (whole / length), 2.0 ** (part / length)]
    assert [factor for _, factor in together(found, True, 0.0)] == pytest.approx(expected)


def test_a_larger_capacity_is_the_fast_bound_and_a_one_sided_range_moves_one_bound():
    capacity = Assumption("KV", Factors(0.9, 1.1), "", True, lambda s, _: s, False, "capacity")
    assert together([capacity], True, 0.5)[0][1] == pytest.approx(0.9)
    assert together([capacity], False, 0.5)[0][1] == pytest.approx(1.1)
    assert together([assumption(1.5, low=1.0)], False, 0.0)[0][1] == 1.0


def test_the_loading_share_leaves_queueing_out():
    parts = {"queue": 90.0, "fetch": 6.0, "prefill": 3.0, "first_decode": 1.0}
    summary = {"latency": {"ttft_parts": {name: {"avg": value} for name, value in parts.items()}}}
    assert loading_share(summary) == pytest.approx(0.6)
    assert loading_share({}) == 0.0


# -- the intervals of a run


def test_a_fleet_has_the_interval_of_one_machine_and_e2e_holds_what_its_parts_leave_open(folder):
    """Alone on either machine, requests take the same times; 1.9 times the TPOT cannot leave E2E at 1.5."""
    one = simulated(folder, "roofline", "one", "--sensitivity", "-q")
    two = simulated(folder, "roofline", "two", "--sensitivity", "-q", "--set", "cluster.machines=2")

    def factors(summary, figure):
        value, ends = summary["latency"][figure]["avg"], summary["certainty"][f"{figure}_mean"]
        return ends["model_low"] / value, ends["model_high"] / value

    for figure in ("ttft", "tpot", "e2e"):
        assert factors(two, figure) == pytest.approx(factors(one, figure), rel=0.02)
        assert factors(one, figure)[0] < 0.97
        assert factors(one, figure)[1] > 1.03
    ttft, e2e = one["latency"]["ttft"]["avg"], one["latency"]["e2e"]["avg"]
    for side, widest in enumerate((min, max)):
        decoding = ttft + (e2e - ttft) * factors(one, "tpot")[side]
        assert widest(factors(one, "e2e")[side] * e2e, decoding) == pytest.approx(
            factors(one, "e2e")[side] * e2e
        )


def test_a_lone_request_at_a_time_has_the_errors_of_whole_runs_as_the_interval(folder):
    """TTFT is a step with a chunk, TPOT a decode step: they move as the steps do, which whole runs contain."""
    summary = simulated(folder, "fitted", "run", "--sensitivity", "-q")
    assert set(summary["certainty"]) == set(CERTAIN)
    ttft, tpot = summary["latency"]["ttft"]["avg"], summary["latency"]["tpot"]["avg"]
    whole = run_factors(source_kind(str(folder / "set.toml")), LOADS[0])
    for name, value in (("ttft_mean", ttft), ("tpot_mean", tpot)):
        ends, factors = summary["certainty"][name], whole[name].factors
        assert ends["model_high"] == pytest.approx(factors.high * value, rel=2e-3)
        assert ends["model_low"] == pytest.approx(factors.low * value, rel=2e-3)
        assert ends["requests_low"] <= value <= ends["requests_high"]


def test_the_digests_are_those_of_the_run_without_intervals(folder):
    plain = simulated(folder, "fitted", "plain", "-q")
    certain = simulated(folder, "fitted", "run", "--sensitivity", "-q")
    assert plain["digest"] == certain["digest"]
    assert "certainty" not in plain
    changing = ("wall", "certainty")
    left, right = ({k: v for k, v in own.items() if k not in changing} for own in (plain, certain))
    assert left == right
    assert kvsim(["reproduce", str(folder / "run")]) == 0


def test_generated_requests_and_the_run_that_explain_repeats_give_the_same_intervals(folder, capsys):
    workload = ("--set", "workload.kind=conversational", "--set", "workload.requests=60")
    run = str(folder / "generated")
    given = ["--set", "tiers.gpu.capacity=900 blocks", "--sensitivity", "-q", "--force"]
    assert kvsim(["simulate", *workload, *given, "-o", run]) == 0
    stored = json.loads((folder / "generated" / "summary.json").read_text())["certainty"]
    capsys.readouterr()
    assert kvsim(["explain", run, "--sensitivity", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["certainty"] == stored


def test_intervals_over_requests_are_those_of_whole_draws():
    random = np.random.default_rng(3)
    count = 97
    arrival = np.sort(random.integers(0, count * 10**8, count))
    first = arrival + random.integers(10**6, 10**9, count)
    finish = first + random.integers(10**6, 10**10, count)
    outputs = random.integers(1, 300, count)
    rows = {"arrival_ns": arrival, "first_token_ns": first, "finish_ns": finish, "output_tokens": outputs}
    found = request_intervals(rows)
    starts, length = drawn_blocks(count)
    draws = ((starts[:, :, None] + np.arange(length)) % count).reshape(len(starts), -1)[:, :count]
    ttft = (first - arrival)[draws] / 1e6
    for name, values in {
        "ttft_mean": ttft.mean(axis=1),
        "ttft_p50": np.percentile(ttft, 50, axis=1),
        "ttft_p99": np.percentile(ttft, 99, axis=1),
        "e2e_mean": ((finish - arrival) / 1e6)[draws].mean(axis=1),
    }.items():
        assert found[name] == pytest.approx(np.percentile(values, [2.5, 97.5])), name
    low, high = found["output_tokens_per_s"]
    assert low < outputs.sum() / (finish.max() - arrival.min()) * 1e9 < high
    few = {name: column[: LEAST_REQUESTS - 1] for name, column in rows.items()}
    assert request_intervals(few) == {}


def test_a_source_without_an_error_has_no_interval_of_the_model(folder):
    summary = simulated(folder, "linear", "given", "--sensitivity", "-q")
    assert summary["step_times"]["error_percent"] is None
    assert source_line(summary) == "step times: given costs linear:base=1ms,token=1us"
    assert all(ends["model_low"] is ends["model_high"] is None for ends in summary["certainty"].values())
    assert "model" not in figure_text(summary, "ttft_mean")
    assert "requests" in figure_text(summary, "ttft_mean")


def test_instant_runs_have_neither_source_nor_intervals(folder, capsys):
    summary = simulated(folder, "instant", "instant", "-q")
    assert not {"step_times", "certainty"} & set(summary)
    text = capsys.readouterr().out
    assert "step times" not in text
    assert "intervals:" not in text
    arguments = ["-c", str(folder / "instant.yaml"), "-o", str(folder / "x"), "--sensitivity"]
    assert kvsim(["simulate", *arguments]) == 2
    assert "--sensitivity: has no effect where no time passes" in capsys.readouterr().err


# -- every verb and format that shows a run


def test_the_readme_shows_what_the_first_run_prints(tmp_path):
    text = printed(tmp_path, "simulate", "-c", "preset:quickstart").splitlines()
    block = (ROOT / "README.md").read_text().split("`make demo` prints:\n\n```\n")[1].split("\n```")[0]
    shown = normalized(block, tmp_path).splitlines()
    assert len(shown) == 32
    assert [line for line in shown if line not in text] == []
