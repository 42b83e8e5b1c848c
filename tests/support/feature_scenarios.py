"""Random scenarios that use one feature each, beside whatever it may be combined with, and both paths of a run.

    python tests/support/feature_scenarios.py FEATURE [--scenarios 300] [--seed 1] [--show]

runs so many scenarios by the core and by the Python reference and prints those whose ``summary.json`` differ.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import shlex
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Settings = dict[str, object]

#: Keys of ``summary.json`` that say how a run was made, not what came of it.
_OF_THE_PATH = ("wall", "engine")


def _some(draw: random.Random, chance: float, choices: dict[str, list[Any]]) -> Settings:
    """Return each of some settings with a chance, at one of its values."""
    return {key: draw.choice(values) for key, values in choices.items() if draw.random() < chance}


def _requests(draw: random.Random, most: int = 30, **fixed: Any) -> Settings:
    """Return a small workload: sessions, or prompts that share beginnings."""
    kind = draw.choice(["conversational", "diverse", "few-shot", "rag", "agentic"])
    own: Settings = {
        "kind": kind,
        "requests": draw.randint(8, most),
        "arrivals.process": "poisson",
        "arrivals.rate_per_s": draw.choice([0.5, 2, 8, 40]),
        "block_size": 512,
        "output_tokens": {"kind": "uniform", "min": 1, "max": draw.choice([4, 60, 200])},
    }
    if kind in ("conversational", "agentic"):
        own["loop"] = draw.choice(["open", "closed"])
        own["think_time"] = {"kind": "uniform", "min": "100ms", "max": draw.choice(["1s", "20s"])}
        own["turns"] = {"kind": "uniform", "min": 1, "max": draw.randint(2, 6)}
        own["new_input_tokens"] = {"kind": "uniform", "min": 20, "max": draw.choice([300, 3000])}
    return {
        "seed": draw.randrange(10**6),
        **{f"workload.{key}": value for key, value in own.items()},
        **fixed,
    }


def _replica(draw: random.Random, chance: float = 0.25) -> Settings:
    """Return what any machine's replica may be told."""
    return _some(
        draw,
        chance,
        {
            "replica.max_num_batched_tokens": [256, 2048, 16384],
            "replica.max_num_seqs": [1, 4, 16],
            "replica.queue_order": ["longest-prefix", "shortest-first"],
            "replica.step_overhead": ["50us"],
            "replica.async_scheduling": ["length", "stop-token"],
            "replica.client_offset": ["7ms"],
            "cache.lookup_time": ["100us"],
        },
    )


def _machines(draw: random.Random, most: int = 2) -> Settings:
    machines = draw.randint(1, most)
    return {"cluster.machines": machines} | ({} if machines == 1 else _router(draw))


def _router(draw: random.Random) -> Settings:
    policies = ["random", "least-loaded", "session-affinity", "longest-prefix", "prefill-cost"]
    return _some(draw, 0.7, {"router.policy": policies})


def _tokens(draw: random.Random, *choices: int) -> int:
    return draw.choice(choices)


#: Models whose layers keep different blocks.
_OF_GROUPS = ["gpt-oss-20b", "gemma-3-27b", "qwen3-next-80b-a3b", "llama-4-scout"]


def _lower_engine(draw: random.Random, name: str) -> Settings:
    """Return a machine's tiers where the cpu follows an engine's own rules."""
    block = draw.choice([64, 128, 512])
    own: Settings = {
        "tiers.gpu.capacity": f"{draw.choice([6000, 12000, 40000]) // block} blocks",
        "tiers.cpu.capacity": f"{draw.choice([4000, 16000, 60000]) // block} blocks",
        "tiers.cpu.semantics": name,
        "cache.block_size": block,
    }
    if name == "hicache":
        own |= {"cache.semantics": "sglang"} | _some(
            draw, 0.5, {"write.policy": ["through", "selective"], "cache.policy": ["lfu", "lru"]}
        )
    elif name == "groups":
        own |= {
            "cache.semantics": "tree",
            "cache.layer_groups": "by-kind",
            "model": draw.choice(_OF_GROUPS),
        } | _some(draw, 0.5, {"write.policy": ["through"]})
    else:
        own |= {"cache.semantics": "vllm"}
        if name == "lmcache" and draw.random() < 0.5:
            own["tiers.disk.capacity"] = f"{draw.choice([8000, 60000]) // block} blocks"
        if name == "vllm-offload" and draw.random() < 0.3:
            own |= {"model": draw.choice(_OF_GROUPS), "cache.layer_groups": "by-kind"}
    return own | _some(draw, 0.3, {"fetch.layer_pipelining": [False]})


def waits_for_duplicates(draw: random.Random) -> Settings:
    """Return a run where requests wait for blocks that others compute, over engines' own stores."""
    store = draw.choice(["sglang", "hicache", "groups-vllm", "groups-tree", "groups", "vllm-offload"])
    block = draw.choice([64, 128, 512])
    own: Settings = {"cache.block_size": block}
    if store in ("hicache", "groups", "vllm-offload"):
        own |= _lower_engine(draw, store)
    else:
        own["tiers.gpu.capacity"] = f"{draw.choice([6000, 12000, 40000]) // block} blocks"
        own["cache.semantics"] = {"groups-vllm": "vllm", "groups-tree": "tree"}.get(store, store)
    if store.startswith("groups-"):
        own |= {"cache.layer_groups": "by-kind", "model": draw.choice(_OF_GROUPS)}
    own |= _requests(draw, 30) | _replica(draw) | _machines(draw)
    own["workload.arrivals.rate_per_s"] = draw.choice([2, 8, 40, 200])
    return own | {"replica.duplicate_prefill": "wait"}


def loses_copies_of_ranks(draw: random.Random) -> Settings:
    """Return ranks that step together, whose copies are lost while they run."""
    ranks = draw.choice([2, 2, 3, 4])
    engines = draw.choice([1, 1, 2])
    block = draw.choice([64, 128, 512])
    own = {
        "replica.dp": ranks,
        "cluster.machines": ranks * engines,
        "cache.block_size": block,
        "tiers.gpu.capacity": f"{draw.choice([3000, 8000, 40000]) // block} blocks",
    }
    plan: list[Settings] = [
        {"at": f"{draw.randint(1, draw.choice([100, 1000, 5000]))}ms", "do": "flush"}
        | ({} if draw.random() < 0.3 else {"machine": draw.randrange(ranks * engines)})
        for _ in range(draw.randint(1, 4))
    ]
    own |= _requests(draw, 30) | _replica(draw) | _router(draw)
    is_drained = draw.random() < 0.3
    if is_drained:
        plan.append({"at": "200ms", "do": "drain", "machine": draw.randrange(ranks * engines)})
    own |= _some(
        draw,
        0.3,
        {
            "replica.duplicate_prefill": ["wait"],
            "cache.policy": ["fifo", "lfu"],
            "cache.full_hit": ["skip-prefill"],
        },
    )
    if not is_drained and draw.random() < 0.4:
        own |= {"router.policy": "weighted", "router.index.kind": "estimated"}
        plan.append({"at": "700ms", "do": "lose-index"})
    if "replica.async_scheduling" not in own:
        own |= _some(draw, 0.3, {"replica.speculation": [{"tokens": 2, "mean_length": 1.5}]})
    return own | {"fleet.plan": plan}


def instant_over_lower_engines(draw: random.Random) -> Settings:
    """Return a run without service time over a store that copies down what is computed."""
    own = _lower_engine(draw, draw.choice(["hicache", "lmcache", "vllm-offload", "groups"]))
    own |= _requests(draw, 40) | _machines(draw, 3)
    own["replica.instant"] = True
    return own | _some(draw, 0.2, {"replica.max_num_batched_tokens": [512, 2048]})


def reads_hicache_storage(draw: random.Random) -> Settings:
    """Return a run over HiCache with a storage below its host tier."""
    own = _lower_engine(draw, "hicache")
    block = int(str(own["cache.block_size"]))
    stop = draw.choice(["best-effort", "wait", "timeout"])
    own |= {
        "tiers.disk.capacity": f"{draw.choice([8000, 60000]) // block} blocks",
        "prefetch.policy": "queued",
        "fetch.policy": stop,
    }
    own |= _some(draw, 0.3, {"prefetch.threshold": [64, 1024], "prefetch.share": [0.1, 0.9]})
    if stop == "timeout":
        own |= _some(
            draw, 0.5, {"fetch.timeout": ["0s", "20ms", "2s"], "fetch.timeout_per_ki_token": ["0s", "3ms"]}
        )
    own |= _requests(draw, 30) | _replica(draw) | _machines(draw)
    if draw.random() < 0.2:
        own["replica.instant"] = True
        own = {key: value for key, value in own.items() if key not in _NOT_INSTANT}
    return own | _some(
        draw, 0.3, {"replica.duplicate_prefill": ["wait"]} if "replica.instant" not in own else {}
    )


_NOT_INSTANT = ("replica.queue_order", "replica.async_scheduling", "replica.client_offset")


def has_stages(draw: random.Random) -> Settings:
    """Return a run of vLLM's scheduler over several pipeline stages."""
    block = draw.choice([64, 128, 512])
    own: Settings = {
        "replica.scheduler": "vllm",
        "cache.semantics": "vllm",
        "replica.pp": draw.choice([2, 2, 3, 4]),
        "cache.block_size": block,
        "tiers.gpu.capacity": f"{draw.choice([3000, 8000, 40000]) // block} blocks",
    }
    own |= _requests(draw, 30) | _machines(draw)
    own |= _some(
        draw,
        0.25,
        {
            "replica.max_num_batched_tokens": [256, 2048, 16384],
            "replica.max_num_seqs": [2, 4, 16],
            "replica.step_overhead": ["50us"],
            "replica.client_offset": ["7ms"],
            "replica.queue_order": ["priority"],
            "replica.watermark": [0.05, 0.3],
            "replica.reserve_full_isl": [False],
            "replica.long_prefill_token_threshold": [64, 512],
            "replica.speculation": [{"tokens": 2, "mean_length": 1.5}],
            "cache.lookup_time": ["100us"],
            "cache.enabled": [False],
            "model": _OF_GROUPS,
        },
    )
    return own


def drafts_over_groups(draw: random.Random) -> Settings:
    """Return a run with drafts over cache groups."""
    store = draw.choice(["groups-vllm", "groups-tree", "groups", "vllm-offload"])
    block = draw.choice([16, 64, 128])
    own: Settings = {
        "cache.block_size": block,
        "tiers.gpu.capacity": f"{draw.choice([6000, 12000, 40000]) // block} blocks",
    }
    if store in ("groups", "vllm-offload"):
        own = _lower_engine(draw, store)
    own["cache.semantics"] = "vllm" if store in ("groups-vllm", "vllm-offload") else "tree"
    own |= {"cache.layer_groups": "by-kind", "model": draw.choice(_OF_GROUPS)}
    own |= _requests(draw, 30) | _replica(draw) | _machines(draw)
    if own["cache.semantics"] == "vllm" and store == "groups-vllm" and draw.random() < 0.4:
        own["replica.scheduler"] = "vllm"
    tokens = draw.choice([1, 2, 3, 6])
    own["replica.speculation"] = {"tokens": tokens, "mean_length": draw.choice([1.0, 1.5, 1.9])}
    own["replica.speculation"] |= _some(draw, 0.3, {"draft_time": ["1ms"], "eagle": [True]})
    return own


#: Draws of scenarios by the feature that each of them uses.
DRAWS: dict[str, Callable[[random.Random], Settings]] = {
    "duplicates": waits_for_duplicates,
    "ranks": loses_copies_of_ranks,
    "instant": instant_over_lower_engines,
    "storage": reads_hicache_storage,
    "stages": has_stages,
    "drafts": drafts_over_groups,
}


def command_line(settings: Settings) -> list[str]:
    """Return the arguments of ``kvsim simulate`` that say some settings."""
    said = [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in settings.items()]
    return [word for key, value in said for word in ("--set", f"{key}={value}")]


def summary(arguments: list[str], directory: Path) -> dict[str, Any] | str:
    """Return ``summary.json`` of ``kvsim simulate`` with some arguments, or the line that refuses them."""
    from kvcache_sim.cli.main import run

    said, out = io.StringIO(), directory / "run"
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = run(["simulate", *arguments, "--quiet", "-o", str(out), "--force"])
    if code == 2:
        return said.getvalue()[-400:]
    assert code == 0, f"exit code {code}: {said.getvalue()[-4000:]}\nkvsim simulate {shlex.join(arguments)}"
    read: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return read


def results(told: dict[str, Any] | str) -> dict[str, Any] | str:
    """Return what came of a run, without what says how it was made."""
    if isinstance(told, str):
        return told
    return {key: value for key, value in told.items() if key not in _OF_THE_PATH}


def different(one: Any, other: Any, at: str = "") -> Iterator[str]:
    """Yield where two values differ, with both."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            yield from different(one.get(key), other.get(key), f"{at}.{key}" if at else key)
    elif one != other:
        yield f"{at}: {one} and {other}"


def main() -> int:
    """Compare both paths of random scenarios of a feature; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("feature", choices=DRAWS)
    parser.add_argument("--scenarios", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", action="store_true")
    asked = parser.parse_args()
    counts: Counter[str] = Counter()
    place, seed = Path(tempfile.mkdtemp()), asked.seed * 1_000_000
    while counts["equal"] + counts["different"] < asked.scenarios:
        seed += 1
        arguments = command_line(DRAWS[asked.feature](random.Random(seed)))
        told = summary(arguments, place)
        core, engine = results(told), "" if isinstance(told, str) else told["engine"]["name"]
        if isinstance(core, str):
            counts["refused"] += 1
            if asked.show:
                print("refused", core.strip().splitlines()[-1], flush=True)
            continue
        python = results(summary([*arguments, "--backend", "python"], place))
        what = "equal" if core == python else "different"
        counts[f"served by {engine}"] += 1
        counts[what] += 1
        if what == "different":
            print(what, "kvsim simulate", shlex.join(arguments), flush=True)
            for line in [*different(core, python)][:6]:
                print("  ", line, flush=True)
    shutil.rmtree(place)
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    return int(counts["different"] > 0)


if __name__ == "__main__":
    sys.exit(main())
