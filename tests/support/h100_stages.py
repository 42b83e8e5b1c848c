"""The given stages of real runs on an H100, and what kvsim says of each: the run as it was, then simulated."""

import csv
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from kvcache_sim.base.rng import stream
from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import simulate

from support.shared_files import shared

#: Llama-2-7B under a vLLM of February 2026, which schedules asynchronously by default. The 8 ms between client
#: and scheduler are the one figure taken from these runs. Whether requests asked for top-p is not recorded.
ASSUMED = ("replica.async_scheduling=length", "replica.client_offset=8ms", "replica.sampling=plain")
_BLOCK_TOKENS = 16
_PROMPTS = 100


@dataclass(frozen=True)
class Means:
    """Mean latencies of a stage, in ms."""

    ttft_ms: float
    itl_ms: float
    e2e_ms: float


def stage_rows() -> list[dict[str, str]]:
    """Return every stage of the file."""
    with shared("calibration/h100_host_overhead_runs.csv").open() as file:
        return [row for row in csv.DictReader(file) if row["scope"] != "summary"]


def measured(row: dict[str, str]) -> Means:
    return Means(*(float(row[name]) for name in ("ttft_mean_ms", "itl_from_e2e_ms", "e2e_mean_ms")))


def simulated(row: dict[str, str], folder: Path, *settings: str) -> Means:
    """Return the means of the stage, simulated: Poisson arrivals that cycle the run's hundred prompts.

    Ten groups of ten prompts share their system prompt. Each answer has ``output_len`` tokens: the spread of
    E2E is too small for the shorter ones that counting an answer's text again gives.
    """
    path = folder / f"{row['scope']}-{row['rate_rps']}.jsonl"
    path.write_text("".join(json.dumps(request) + "\n" for request in _requests(row)))
    fixed = ["cache.block_size=16", "model=llama-2-7b", "trace.block_size=16"]
    fixed += [] if "cache.enabled=false" in settings else ["cache.semantics=vllm"]
    fixed += ["replica.step_time=roofline:llama-2-7b@h100", *ASSUMED]
    fixed += [f"replica.{key}={row[key]}" for key in ("max_num_seqs", "max_num_batched_tokens")]
    scenario = load_scenario(None, [*fixed, *settings], path)
    columns = simulate(scenario.settings, read_requests(scenario)).requests
    settled = columns["arrival_ns"] > 20e9
    ttft = (columns["first_token_ns"] - columns["arrival_ns"])[settled].mean() / 1e6
    e2e = (columns["finish_ns"] - columns["arrival_ns"])[settled].mean() / 1e6
    return Means(ttft, (e2e - ttft) / (int(row["output_len"]) - 1), e2e)


def _requests(row: dict[str, str]) -> list[dict[str, object]]:
    rate, tokens = float(row["rate_rps"]), round(float(row["prompt_len_mean"]))
    gaps_ms = stream(5, "arrivals").exponential(1e3 / rate, int(rate * float(row["duration_s"])))
    shared_blocks = int(row["system_prompt_len"]) // _BLOCK_TOKENS
    own_blocks = tokens // _BLOCK_TOKENS - shared_blocks
    group_of = _PROMPTS // int(row["num_groups"])
    requests: list[dict[str, object]] = []
    for index, at_ms in enumerate(np.cumsum(gaps_ms)):
        prompt = index % _PROMPTS
        system = range(prompt // group_of * shared_blocks, (prompt // group_of + 1) * shared_blocks)
        own = range(10_000 + prompt * own_blocks, 10_000 + (prompt + 1) * own_blocks)
        requests.append(
            {
                "timestamp": float(at_ms),
                "input_length": tokens,
                "output_length": int(row["output_len"]),
                "hash_ids": [*system, *own],
            }
        )
    return requests
