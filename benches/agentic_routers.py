"""Compare routers on an agentic trace: ratios to a study's first row, with intervals of requests and model.

``python benches/agentic_routers.py TRACE [--rows N …] [--set KEY=VALUE …]`` runs rows of
``scenarios/studies/agentic-routers.yaml`` three times each: as they are, and at both bounds of what the
scenario assumes. The interval of requests is a jackknife over 20 groups of sessions (by request number),
paired; that of the model has both sides at the same bound.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from kvcache_sim.report.intervals.assumptions import assumptions
from kvcache_sim.report.intervals.together import together
from kvcache_sim.scenario.load import Scenario, scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import simulate

STUDY = Path(__file__).parent.parent / "scenarios/studies/agentic-routers.yaml"
BATCHES, T_19, HOUR_NS = 20, 2.093, 3600 * 10**9
FIGURES = ("TTFT p50", "TTFT p95", "mean E2E", "mean TPOT", "finished in an hour", "hit rate")


def figures(rows: Mapping[str, Any], kept: Any) -> list[float]:
    """Return the figures of some requests: ms, requests, share."""
    arrival, first, finish, inputs, outputs, cached = (
        rows[name][kept].astype(float)
        for name in (
            *("arrival_ns", "first_token_ns", "finish_ns", "input_tokens", "output_tokens"),
            "cached_prefix_length_used",
        )
    )
    ttft, later = (first - arrival) / 1e6, outputs > 1
    p50, p95 = np.percentile(ttft, (50, 95))
    tpot = (finish - first)[later] / 1e6 / (outputs[later] - 1)
    done = float((finish < HOUR_NS).sum())
    return [p50, p95, (finish - arrival).mean() / 1e6, tpot.mean(), done, cached.sum() / inputs.sum()]


def of_run(scenario: Scenario, settings: Any) -> list[list[float]]:
    """Return the figures of a run, as a whole and without each batch of requests."""
    run = simulate(settings, read_requests(scenario))
    rows = run.requests
    number = np.array(rows["request"])
    batch = number * BATCHES // (number.max() + 1)
    served = np.array(rows["finish_ns"]) > 0
    return [figures(rows, served), *(figures(rows, served & (batch != b)) for b in range(BATCHES))]


def runs(scenario: Scenario) -> list[list[list[float]]]:
    """Return the figures as the scenario stands, and at its slow and its fast bound."""
    made = [of_run(scenario, scenario.settings)]
    for slow in (True, False):
        settings = scenario.settings
        for assumed, factor in together(assumptions(scenario), slow, 0.0):
            settings = assumed.apply(settings, factor)
        made.append(of_run(scenario, settings))
    return made


def compared(row: list[list[list[float]]], base: list[list[list[float]]], at: int) -> list[float]:
    """Return a ratio and its two intervals."""
    logs = [math.log(own[at] / other[at]) for own, other in zip(row[0], base[0], strict=True)]
    spread = T_19 * math.sqrt((BATCHES - 1) * float(np.var(logs[1:])))
    model = [math.log(own[0][at] / other[0][at]) for own, other in zip(row, base, strict=True)]
    return [math.exp(x) for x in (logs[0], logs[0] - spread, logs[0] + spread, min(model), max(model))]


def main() -> None:
    """Print one JSON line per row."""
    parser = argparse.ArgumentParser()
    parser.add_argument("trace")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--rows", type=int, nargs="*", help="rows to run, from 0; the first is compared with")
    asked = parser.parse_args()
    study = yaml.safe_load(STUDY.read_text(encoding="utf-8"))
    base = None
    for row in [study["list"][n] for n in asked.rows] if asked.rows else study["list"]:
        sets = [f"{key}={json.dumps(value)}" for key, value in row.items()]
        sets = [f"trace.path={Path(asked.trace).resolve()}", *asked.set, *sets]
        made = runs(scenario_from_text(yaml.safe_dump(study["scenario"]), str(STUDY), STUDY.parent, sets))
        base = base or made
        ratios = {name: [round(x, 3) for x in compared(made, base, at)] for at, name in enumerate(FIGURES)}
        here = [round(x, 4) for x in made[0][0]]
        print(json.dumps({"row": row, "figures": here, "ratios": ratios}), flush=True)


if __name__ == "__main__":
    main()
