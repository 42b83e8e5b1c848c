"""The cost of a run: GPUs of each machine, lower tiers by the month, machine-seconds of a fleet that scales."""

import json
from pathlib import Path

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.metrics.load_run import load_run
from kvcache_sim.scenario.cost import costs_by_batch, with_cost
from kvcache_sim.scenario.load import scenario_from_text
from support.product.scenarios import cost_of

PRICES = "cost: {gpu_hour: 3.0, currency: EUR, dram_gib_month: 7.3, nvme_gib_month: 0.73}\n"
TIERS = "tiers: {gpu: {capacity: 1GiB}, cpu: {capacity: 100GiB}, disk: {capacity: 1000GiB}}\n"
SUMMARY = {
    "tokens": {"input": 3_000_000, "output": 1_000_000},
    "throughput": {"output_tokens_per_s": 1000.0},
    "fleet": {"machine_s": 90.0},
    "latency": {},
}
IDLE = SUMMARY | {"tokens": {"input": 0, "output": 0}, "throughput": {"output_tokens_per_s": None}}


def cost(text, summary=SUMMARY):
    return cost_of(scenario_from_text(text, "x", Path()), summary)


def test_cost_by_hand():
    prices = PRICES.replace("}", ", gpus_per_machine: 2}")
    found = cost(f"cache: {{kv_bytes_per_token: 1MiB}}\ncluster: {{machines: 2}}\n{TIERS}{prices}")
    per_hour = 2 * 2 * 3.0 + 2 * 100 * 7.3 / 730 + 2 * 1000 * 0.73 / 730
    total = per_hour * 1000 / 3600
    assert found == pytest.approx({"per_hour": per_hour, "total": total, "per_million_output_tokens": total})
    nothing = dict.fromkeys(("total", "per_million_output_tokens"))
    assert cost(PRICES, IDLE) == {"per_hour": 3.0, **nothing}


def test_machines_have_tiers_and_blocks_of_their_own():
    """The first machine has 100 GiB of memory, the second 40 GiB and GPUs of another set."""
    own = "machines: [{}, {replica: {step_time: h100-llama-3-70b-tp4}, tiers: {cpu: {capacity: 40GiB}}}]\n"
    text = "cluster: {machines: 2}\ntiers: {gpu: {capacity: 1GiB}, cpu: {capacity: 100GiB}}\n"
    assert cost(text + own + PRICES)["per_hour"] == pytest.approx((1 + 4) * 3.0 + 140 * 7.3 / 730)


def test_a_fleet_that_scales_pays_for_its_machine_seconds():
    text = "fleet: {scaling: {policy: requests, target: 4, most: 3, interval: 1s}}\ncluster: {machines: 1}\n"
    found = cost(text + PRICES)
    assert (found["per_hour"], found["total"]) == pytest.approx((9.0, 3.0 * 90 / 3600))


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("replica: {step_time: 'roofline:qwen3-32b@h200:tp2'}", 2),
        ("replica: {step_time: h100-llama-3-70b-tp4}", 4),
        ("cluster: {machines: 3}", 3),
        (
            "replica: {step_time: 'roofline:qwen3-32b@h200:tp2', pp: 2, scheduler: vllm}\n"
            "cache: {semantics: vllm}\ntiers: {gpu: {capacity: 900 blocks}}",
            4,
        ),
        ("cluster: {machines: 2}\nmachines: [{}, {replica: {step_time: h100-llama-3-70b-tp4}}]", 5),
        ("cluster: {machines: 3}\nmodels: {of: {a: {machines: 2}, b: {step_time: h100-llama-3-70b-tp4}}}", 6),
    ],
)
def test_a_machine_costs_the_gpus_of_its_step_times(text, gpus):
    assert cost(f"{text}\ncost: {{gpu_hour: 3.0}}\n", IDLE)["per_hour"] == 3.0 * gpus


def test_an_unbounded_tier_has_no_price_but_nought():
    text = "tiers: {gpu: {capacity: 1GiB}, cpu: {capacity: unbounded}}\n"
    with pytest.raises(UsageError, match="an unbounded cpu tier has no price"):
        cost(f"{text}cost: {{gpu_hour: 1.0, dram_gib_month: 1.0}}\n")
    assert cost(f"{text}cost: {{gpu_hour: 1.0}}\n")["per_hour"] == 1.0


def test_cost_stands_behind_the_throughput_where_there_are_prices():
    free, priced = (scenario_from_text(text, "x", Path()) for text in ("", PRICES))
    assert with_cost(free, SUMMARY) is SUMMARY
    assert [*with_cost(priced, SUMMARY)] == ["tokens", "throughput", "cost", "fleet", "latency"]


def test_without_a_batch_a_token_costs_the_more_the_fewer_are_made():
    summary = {"cost": {"per_million_output_tokens": 2.0}, "throughput": {"output_tokens_per_s": 6.0}}
    rates = {"throughput.output_tokens_per_s": [3.0, 12.0]}
    assert costs_by_batch(summary, rates) == {"cost.per_million_output_tokens": [4.0, 1.0]}
    for none in ({}, {"throughput.output_tokens_per_s": [3.0, 0.0]}):
        assert costs_by_batch(summary, none) == {}
    assert costs_by_batch(summary | {"cost": None}, rates) == {}


def test_prices_are_in_the_summary_and_change_no_digest(tmp_path, capsys):
    text = "workload: {kind: conversational, requests: 60}\ntiers: {gpu: {capacity: 400 blocks}}\n"
    found = []
    for name, prices in (("free", ""), ("priced", PRICES)):
        (tmp_path / f"{name}.yaml").write_text(text + prices)
        path = str(tmp_path / name)
        assert kvsim(["simulate", "-c", f"{path}.yaml", "-o", path, "-q", "--format", "json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    free, priced = found
    assert priced["digest"] == free["digest"]
    assert priced["cost"]["per_million_output_tokens"] > 0
    assert priced["cost"]["currency"] == "EUR"
    assert kvsim(["report", str(tmp_path / "priced"), "-o", str(tmp_path / "r.html")]) == 0
    assert ">EUR " in (tmp_path / "r.html").read_text()
    assert "cost" not in free
    hashes = {load_run(tmp_path / name).manifest["config_hash"] for name in ("priced", "free")}
    assert len(hashes) == 1
