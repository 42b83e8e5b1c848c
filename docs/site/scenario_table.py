"""The table of ``scenarios/README.md``; ``python docs/site/scenario_table.py`` writes it from fresh runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kvcache_sim.metrics.summary import summarize
from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import simulate
from kvcache_sim.tiers import KV_SOURCES

FOLDER = Path(__file__).resolve().parents[2] / "scenarios"
PAGE = FOLDER / "README.md"
_TABLE = re.compile(r"^\| scenario \|.*?\n\n", re.M | re.S)


class Scenario(NamedTuple):
    """A row: a scenario's file, its question, and the settings of a variant that it is compared with."""

    name: str
    question: str
    settings: tuple[str, ...] = ()


SCENARIOS = (
    Scenario("one-gpu", "What survives on the GPU alone?"),
    Scenario("cpu-offload", "What does a CPU tier save?"),
    Scenario("nvme", "When does a slow tier pay?"),
    Scenario("remote-pool", "What do machines gain when they read from each other?"),
    Scenario("two-machines", "What do two machines lose that read from each other over one wire?"),
    Scenario(
        "two-machines",
        "the same over two wires",
        (
            "channels.wire.edges=['1:cpu->0:cpu']",
            "channels.back={bandwidth: 10Gb/s, latency: 5us, edges: ['0:cpu->1:cpu']}",
        ),
    ),
    Scenario("mooncake-pool", "How does TTFT depend on the network?"),
    Scenario("cachedattention", "Does a paused session's KV return before its next turn?"),
    Scenario("cachedattention", "the same without prefetch", ("prefetch={policy: none}",)),
    Scenario("ragcache", "What does the order of the queue do to reuse?"),
    Scenario("pd-disagg", "What do prefill and decode pools do to the time between tokens?"),
    Scenario("pd-disagg", "the same four machines without pools", ("pools.prefill=0", "pools.decode=0")),
)


def summary_of(row: Scenario) -> dict[str, Any]:
    """Run a row's scenario as it stands, with its variant's settings."""
    scenario = load_scenario(FOLDER / f"{row.name}.yaml", list(row.settings))
    return summarize(simulate(scenario.settings, read_requests(scenario)), scenario.model.cache.block_size)


def cells(row: Scenario) -> Iterator[str]:
    """Yield the cells of a row: name, question, hit rate, its part by tier, TTFT, ITL."""
    summary = summary_of(row)
    found, tokens = summary["cache"]["hit_tokens"], summary["tokens"]
    yield f"`{row.name}`"
    yield row.question
    yield _share(summary["cache"]["token_hit_rate"])
    for index in KV_SOURCES:
        yield _share(found[index] / tokens["input"]) if found[index] else "–"
    for statistic in ("avg", "p50", "p99"):
        yield _ms(summary["latency"]["ttft"][statistic])
    yield _ms(summary["latency"]["itl"]["p99"])


def table() -> str:
    """Return the table of all rows, each from a fresh run."""
    names = ["scenario", "question", "hit rate", *KV_SOURCES, "TTFT mean", "p50", "p99", "ITL p99"]
    rows = [names, *(list(cells(row)) for row in SCENARIOS)]
    head, *rest = (f"| {' | '.join(row)} |\n" for row in rows)
    return "".join([head, "|---" * len(names) + "|\n", *rest])


def written(text: str, rows: str) -> str:
    """Return the page with other rows in its table."""
    page, count = _TABLE.subn(lambda _: rows + "\n", text)
    if count != 1:
        raise SystemExit(f"{PAGE}: {count} tables of scenarios; expected 1")
    return page


def _share(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def _ms(value: float) -> str:
    return f"{value:,.0f}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), table()), encoding="utf-8")
