"""A dozen scenarios, each simulated once a session by whichever test asks for its run first."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from support.printed import printed

CHAT = "kind: conversational, requests: 150, arrivals: {process: poisson, rate_per_s: 6}, block_size: 16"
SMALL = f"seed: 3\nworkload: {{{CHAT}}}\ncache: {{block_size: 16}}\n"
LINK = "{bandwidth: 3GB/s, latency: 20us, edges: [gpu->cpu, cpu->gpu]}"

#: Name of a run → its scenario.
SCENARIOS = {
    "small": f"{SMALL}tiers: {{gpu: {{capacity: 900 blocks}}}}\n",
    "same": f"{SMALL}tiers: {{gpu: {{capacity: 900 blocks}}}}\ncost: {{gpu_hour: 2}}\n",
    "large": f"{SMALL}tiers: {{gpu: {{capacity: 20000 blocks}}}}\ncost: {{gpu_hour: 2}}\nslo: {{ttft: 60ms}}\n",
    "a-little-larger": f"{SMALL}tiers: {{gpu: {{capacity: 930 blocks}}}}\n",
    "saturated": f"{SMALL}tiers: {{gpu: {{capacity: 900 blocks}}}}\nreplica: {{max_num_seqs: 1}}\n",
    "tiered": (
        f"{SMALL}tiers: {{gpu: {{capacity: 500 blocks}}, cpu: {{capacity: 900 blocks}}, disk: {{capacity: 4GiB}}}}\n"
        f"channels: {{pcie: {LINK}}}\n"
    ),
    "routed": (
        f"{SMALL}cluster: {{machines: 3}}\nrouter: {{policy: longest-prefix}}\nfetch: {{lookup: cluster}}\n"
        "tiers: {gpu: {capacity: 300 blocks}, cpu: {capacity: 700 blocks}}\n"
        "measure: {warmup: 10%}\n"
    ),
    "pools": f"{SMALL}cluster: {{machines: 3}}\npools: {{prefill: 2, decode: 1}}\nreplica: {{max_model_len: 2048}}\n",
    "scaled": (
        f"{SMALL}cluster: {{machines: 1}}\n"
        "fleet: {scaling: {policy: requests, target: 4, most: 3, interval: 1s}, plan: [{at: 3s, do: flush}]}\n"
    ),
    "tenants": (
        "trace: {path: tenants.jsonl}\ncache: {block_size: 16}\ntiers: {gpu: {capacity: 60 blocks}}\ntenants: {}\n"
        "replica: {max_num_seqs: 2}\n"
        "slo: {ttft: 60ms, classes: {long: {when: input_tokens > 100, ttft: 200ms, tpot: 7ms}}}\n"
    ),
}


def tenants() -> str:
    """Return a trace of two tenants whose prompts share their beginnings, two of them longer than the rest."""
    rows = [
        {
            "timestamp": 20 * n,
            "input_length": 16 * (3 + n % 9),
            "output_length": 4 + n % 3,
            "tenant": "ab"[n % 2],
        }
        | {"hash_ids": [*range(3), *(100 * n + k for k in range(n % 9))], "session_id": f"chat-{n % 7}"}
        for n in range(60)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the function that gives the directory of a run of ``SCENARIOS``, simulated the first time."""
    home = tmp_path_factory.mktemp("runs")
    (home / "tenants.jsonl").write_text(tenants())

    @cache
    def directory(name: str) -> Path:
        (home / f"{name}.yaml").write_text(SCENARIOS[name])
        options = ("-q", "--causes", "--prefixes", "--record", "all", "--no-sensitivity")
        text = printed(home, "simulate", "-c", f"{name}.yaml", "-o", name, *options)
        (home / f"{name}.txt").write_text(text)
        return home / name

    return directory


@pytest.fixture
def say(runs: Callable[[str], Path]) -> Callable[..., str]:
    """Return the function that gives what a command prints about runs, which it names by ``RUN:`` names."""

    def said(*words: str, columns: int = 80, code: int = 0) -> str:
        named = [runs(word[4:]).name if word.startswith("RUN:") else word for word in words]
        return printed(runs("small").parent, *named, columns=columns, code=code)

    return said
