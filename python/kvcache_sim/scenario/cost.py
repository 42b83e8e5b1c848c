"""The cost of a run: GPU hours, and memory and storage of its tiers, over the duration of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.tier_table import ROWS
from kvcache_sim.model.step_times import measured_on
from kvcache_sim.scenario.load import Scenario

_RATE = "output_tokens_per_s"
_HOURS_A_MONTH = 730.0
_GIB = 2**30
_PRICED = {row.name: row.price for row in ROWS if row.price}


def cost_of(scenario: Scenario, summary: Mapping[str, Any]) -> dict[str, float | None] | None:
    """Return the cost of a run in the currency of the prices; None if the scenario has no ``cost``.

    ``per_hour`` = all machines' GPUs × gpu_hour + GiB of every lower tier × its monthly price per GiB ÷ 730;
    a shared pool has no price. A machine's GPUs are ``gpus_per_machine``, else the tensor-parallel degree of
    its step-time set times its pipeline stages. ``total`` = per_hour × the time from the first arrival to the
    last token. If a policy scales the fleet (``fleet.scaling``), ``total`` counts only its machine-seconds of
    that time. ``per_million_output_tokens`` counts generated tokens and is None if there are none. Fractions
    of an hour are charged proportionally.

    Raises ``UsageError`` for an unbounded tier with a price.
    """
    prices = scenario.model.cost
    if prices is None:
        return None
    settings = scenario.settings
    per_hour = _gpus(scenario, prices.gpus_per_machine) * prices.gpu_hour
    for number, machine in enumerate(settings.machines):
        block_bytes = settings.cache_of(number).block_bytes
        for tier in machine.tiers:
            price = getattr(prices, _PRICED[tier.name]) if tier.name in _PRICED else 0.0
            if price and tier.capacity_blocks is None:
                raise UsageError(
                    f"an unbounded {tier.name} tier has no price",
                    where=scenario.tree.location(("tiers", tier.name, "capacity")),
                    expected="a capacity",
                )
            per_hour += (
                (tier.capacity_blocks or 0) * tier.form.bytes_of(block_bytes) / _GIB * price / _HOURS_A_MONTH
            )
    tokens, rate = summary["tokens"], summary["throughput"][_RATE]
    total = per_hour * tokens["output"] / rate / 3600 if rate else None
    if total is not None and settings.membership.scaling is not None:
        total = per_hour / len(settings.machines) * summary["fleet"]["machine_s"] / 3600
    return {
        "per_hour": per_hour,
        "total": total,
        "per_million_output_tokens": total / tokens["output"] * 1e6 if total is not None else None,
    }


def _gpus(scenario: Scenario, each: int | None) -> int:
    """Return the GPUs of all machines; ``each``: GPUs per machine, if given."""
    common, sections = scenario.resolved["replica"], scenario.resolved["machines"]
    of_kind: dict[tuple[str, int], int] = {}
    total = 0
    for machine in range(len(scenario.settings.machines)):
        replica = {**common, **(sections[machine].get("replica", {}) if machine < len(sections) else {})}
        kind = replica["step_time"], replica["pp"] or 1
        if kind not in of_kind:
            of_kind[kind] = each or measured_on(kind[0]).tensor_parallel * kind[1]
        total += of_kind[kind]
    return total


def with_cost(scenario: Scenario, summary: dict[str, Any]) -> dict[str, Any]:
    """Return the summary with ``cost`` after its throughput, if the scenario has prices."""
    prices, amounts = scenario.model.cost, cost_of(scenario, summary)
    if prices is None or amounts is None:
        return summary
    cost = {**amounts, "currency": prices.currency}
    return {
        name: value
        for key, group in summary.items()
        for name, value in ([(key, group), ("cost", cost)] if key == "throughput" else [(key, group)])
    }


def costs_by_batch(
    summary: Mapping[str, Any], batches: Mapping[str, Sequence[float]]
) -> dict[str, list[float]]:
    """Return the costs of tokens without each batch in turn: inverse to the rate of output tokens."""
    cost, rate = summary.get("cost") or {}, summary["throughput"][_RATE]
    name, throughputs = "per_million_output_tokens", batches.get(f"throughput.{_RATE}", ())
    if not cost.get(name) or not min(throughputs, default=0.0):
        return {}
    return {f"cost.{name}": [cost[name] * rate / throughput for throughput in throughputs]}
