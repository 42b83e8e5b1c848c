"""Compare a public routing study with this simulator: four policies over a ladder of rates, on two clusters.

``python benches/routing_study.py [qwen3-32b|llama-70b]`` prints rows of ``docs/data/routing-study-*.toml``:
the measured results from ``routing_study.csv``, and the simulated results of the same ladder.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kvcache_sim as kv
import numpy as np
from kvcache_sim.base.rng import stream

_BLOCK_TOKENS = 64
_OUTPUT_TOKENS = 1000
#: Until every request of a stage has finished; the study waits, which changes no cache.
_PAUSE_S = 900.0
#: The fitted constant, from rows at 3 and 10 requests a second of the first study only; llm-d's scrape.
#: The overhead was fitted, to one policy, on top of kernels alone: it holds what they leave out.
KERNELS_ALONE = {"replica.sampling": "plain", "replica.sustained_clocks": False}
FITTED = {"replica.step_overhead": "7ms", "router.view.interval": "50ms"}
#: TTFT p90 from which a policy has collapsed: no queue is that long below the knee.
COLLAPSED_S = 8.0
POLICIES = ("precise", "estimated", "load", "random")
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Study:
    """A cluster, its prompts, and the rates in order with their seconds; the first stage fills the caches."""

    stages: tuple[tuple[int, int], ...]
    groups: int
    prompts_a_group: int
    shared_tokens: int
    own_tokens: int
    poisson: bool
    settings: Settings
    scorers: Mapping[str, Mapping[str, float]]
    #: Blocks of 64 tokens that the estimating router remembers per machine.
    remembered_blocks: int


STUDIES = {
    "qwen3-32b": Study(
        (
            *((15, 50), (3, 20), (10, 20), (15, 20), (20, 38), (22, 34), (25, 30), (30, 25), (35, 21)),
            *((40, 38), (43, 36), (46, 33), (49, 30), (52, 29), (55, 27), (57, 26), (60, 25)),
        ),
        *(150, 5, 6000, 1200, True),
        {
            "cluster.machines": 8,
            "tiers.gpu.capacity": f"{307_328 // _BLOCK_TOKENS} blocks",
            "replica.step_time": "h100-qwen3-32b-tp2",
            **KERNELS_ALONE,
        },
        {
            "precise": {"prefix": 3, "kv-use": 2, "queue": 2},
            "estimated": {"prefix": 1, "kv-use": 1, "queue": 1},
            "load": {"kv-use": 1, "queue": 1},
        },
        23_500,
    ),
    "llama-70b": Study(
        (
            *((10, 25), (3, 210), (4, 180), (5, 120), (6, 120), (8, 90)),
            *((10, 70), (12, 60), (15, 50), (20, 50)),
        ),
        *(83, 3, 8000, 1000, False),
        {
            "cluster.machines": 4,
            "tiers.gpu.capacity": f"{461_376 // _BLOCK_TOKENS} blocks",
            "replica.step_time": "roofline:llama-3.1-70b@h100:tp4",
            **KERNELS_ALONE,
        },
        {
            "precise": {"prefix": 2, "kv-use": 1, "active-requests": 1},
            "estimated": {"prefix": 2, "kv-use": 1, "active-requests": 1},
            "load": {"kv-use": 1, "active-requests": 1},
        },
        # 2,200 blocks of 256 bytes; a token drawn from the vocabulary has 6.52 bytes
        1_350,
    ),
}


@dataclass(frozen=True)
class Row:
    """One stage: output tokens a second from its first arrival to its last token, and TTFT in seconds."""

    rate: int
    tokens_per_s: float
    ttft_p90_s: float
    ttft_mean_s: float
    #: Share of the mean TTFT that is queueing.
    queue: float


def measured(name: str) -> dict[tuple[int, str], dict[str, float]]:
    """Return the published figures of a study by rate and policy."""
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8") as file:
        lines = csv.DictReader(line for line in file if not line.startswith("#"))
        rows = [line for line in lines if line["study"] == name]
    return {
        (int(row["rate"]), row["policy"]): {
            key: float(value) for key, value in row.items() if key not in ("study", "policy")
        }
        for row in rows
    }


def requests(
    study: Study, stages: Sequence[tuple[int, int]], sent_per_s: Mapping[int, float]
) -> tuple[list[dict[str, Any]], list[int]]:
    """Return rows of a trace, and the end of each stage among them.

    Prompts come in one shuffled order, repeated, as the load generator takes them. The arrivals of a stage
    are spread over the time in which the study sent them.
    """
    draw = stream(1, "routing study")
    prompts = study.groups * study.prompts_a_group
    order = draw.permutation(prompts)
    shared = study.shared_tokens // _BLOCK_TOKENS
    own = -(-(study.shared_tokens + study.own_tokens) // _BLOCK_TOKENS) - shared
    rows: list[dict[str, Any]] = []
    ends = []
    start_s = 0.0
    for rate, seconds in stages:
        count, actual = rate * seconds, sent_per_s.get(rate, float(rate))
        gaps = draw.standard_exponential(count) if study.poisson else np.ones(count)
        arrivals_s = start_s + np.cumsum(gaps) * (count / actual / gaps.sum())
        for at_s in arrivals_s:
            prompt = int(order[len(rows) % prompts])
            first = prompt // study.prompts_a_group * shared
            ids = [*range(first, first + shared), *range(10**6 + prompt * own, 10**6 + (prompt + 1) * own)]
            rows.append(
                {
                    "timestamp": round(float(at_s) * 1000, 3),
                    "input_length": study.shared_tokens + study.own_tokens,
                    "output_length": _OUTPUT_TOKENS,
                    "hash_ids": ids,
                }
            )
        ends.append(len(rows))
        start_s = float(arrivals_s[-1]) + _PAUSE_S
    return rows, ends


def router_settings(study: Study, policy: str, fitted: Settings) -> dict[str, Any]:
    """Return the settings of a policy, as the study configured it."""
    if policy == "random":
        return {"router.policy": "random", "replica.step_overhead": fitted["replica.step_overhead"]}
    settings = {"router.policy": "weighted", "router.scorers": dict(study.scorers[policy]), **fitted}
    if policy == "estimated":
        settings |= {"router.index.kind": "estimated", "router.index_blocks": study.remembered_blocks}
    return settings


def simulated(
    name: str, policy: str, stages: Sequence[tuple[int, int]] = (), fitted: Settings = FITTED
) -> list[Row]:
    """Return the stages of a study under a policy, without the filling stage."""
    study = STUDIES[name]
    stages = stages or study.stages
    sent = {rate: row["requests_per_s"] for (rate, own), row in measured(name).items() if own == policy}
    rows, ends = requests(study, stages, {} if not study.poisson else sent)
    settings: dict[str, Any] = {
        "cache.block_size": _BLOCK_TOKENS,
        "trace.block_size": _BLOCK_TOKENS,
        "replica.max_num_seqs": 1024,
        "replica.max_num_batched_tokens": 8192,
        **study.settings,
        **router_settings(study, policy, fitted),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        found = kv.simulate(str(path), **settings).requests
    arrival, first, finish, queue = (
        found[column].to_numpy() / 1e9 for column in ("arrival_ns", "first_token_ns", "finish_ns", "queue_ns")
    )
    return list(_stages(stages, ends, arrival, (first, finish, queue)))[1:]


def _stages(
    stages: Sequence[tuple[int, int]], ends: Sequence[int], arrival: Any, ended: tuple[Any, Any, Any]
) -> Iterator[Row]:
    first, finish, queue = ended
    begin = 0
    for (rate, _), end in zip(stages, ends, strict=True):
        own = slice(begin, end)
        assert begin == 0 or finish[:begin].max() < arrival[own].min(), "a stage ran into the next"
        ttft = first[own] - arrival[own]
        took_s = finish[own].max() - arrival[own].min()
        tokens_per_s = (end - begin) * _OUTPUT_TOKENS / took_s
        share = float(queue[own].sum() / ttft.sum())
        yield Row(rate, float(tokens_per_s), float(np.percentile(ttft, 90)), float(ttft.mean()), share)
        begin = end


def main(names: Sequence[str]) -> None:
    """Print a table per study."""
    for name in names or STUDIES:
        real = measured(name)
        print(f"\n{name}: tokens a second measured / simulated (error), TTFT p90 in s")
        print("| rate | " + " | ".join(POLICIES) + " |\n|" + "---|" * (len(POLICIES) + 1))
        found = {policy: {row.rate: row for row in simulated(name, policy)} for policy in POLICIES}
        for rate in found[POLICIES[0]]:
            cells = []
            for policy in POLICIES:
                row, own = real[rate, policy], found[policy][rate]
                error = own.tokens_per_s / row["output_tokens_per_s"] - 1
                cells.append(
                    f"{row['output_tokens_per_s']:,.0f} / {own.tokens_per_s:,.0f} ({error:+.0%}), "
                    f"{row['ttft_p90_s']:.1f} / {own.ttft_p90_s:.1f}"
                )
            print(f"| {rate} | " + " | ".join(cells) + " |")
        for policy in POLICIES:
            errors = [
                abs(own.tokens_per_s / real[rate, policy]["output_tokens_per_s"] - 1)
                for rate, own in found[policy].items()
            ]
            real_knee = [rate for rate in found[policy] if real[rate, policy]["ttft_p90_s"] > COLLAPSED_S]
            own_knee = [rate for rate, own in found[policy].items() if own.ttft_p90_s > COLLAPSED_S]
            print(
                f"{policy}: mean |error| {np.mean(errors):.1%}, worst {max(errors):.0%}; collapsed from "
                f"{min(real_knee, default='never')} / {min(own_knee, default='never')}"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
