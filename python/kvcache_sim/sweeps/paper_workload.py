"""The requests that a paper's policy is tried on without a trace: agents beside one-shot prompts."""

from __future__ import annotations

from kvcache_sim.workload.generate import build
from kvcache_sim.workload.toolbox.merge import merge
from kvcache_sim.workload.trace import Trace

#: Blocks of 64 tokens of the cache that goes with the workload.
CAPACITY_BLOCKS = 800


def paper_workload(seed: int, requests: int = 1200) -> Trace:
    """Return half the requests of agents with tool calls and half of prompts that never come again.

    Sessions are called ``0:…`` and ``1:…`` after the class of their requests. Equal seeds, equal requests.
    """
    poisson = {"process": "poisson", "rate_per_s": 0.4}
    agents = {
        "requests": requests // 2,
        "arrivals": {"process": "poisson", "rate_per_s": 0.05},
        "turns": {"kind": "uniform", "min": 6, "max": 20},
        "think_time": {"kind": "lognormal", "median": "8s", "sigma": 0.8, "min": "1s", "max": "90s"},
        "system_prompt_tokens": 1024,
        "new_input_tokens": {"kind": "lognormal", "median": 500, "sigma": 0.8, "min": 1, "max": 4096},
        "subagent_probability": 0.0,
        "block_size": 64,
    }
    alone = {
        "requests": requests // 2,
        "arrivals": poisson,
        "turns": {"kind": "constant", "value": 1},
        "first_input_tokens": {"kind": "lognormal", "median": 3000, "sigma": 0.6, "min": 64, "max": 12000},
        "block_size": 64,
    }
    return merge([build("agentic", agents, seed), build("conversational", alone, seed + 1)])
