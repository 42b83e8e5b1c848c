"""Random scenarios over all that ``spec/`` covers: settings by dotted key, most of which a build takes."""

import random
from typing import Any

Settings = dict[str, Any]

ROUTERS = ["random", "least-loaded", "session-affinity", "longest-prefix", "prefill-cost", "overlap-cost"]


def drawn(seed: int) -> Settings:
    """Return the settings of one random scenario."""
    draw = random.Random(seed)
    machines = draw.choice([1, 1, 2, 3, 4])
    lower = draw.choice([0, 1, 1, 2, 2, 2])
    settings: Settings = {"seed": seed, "cluster.machines": machines}
    settings |= _requests(draw) | _cache(draw, lower) | _replica(draw) | _tiers(draw, lower)
    pool = machines > 1 and lower > 0 and draw.random() < 0.15
    if pool:
        settings["cluster.pool"] = {"capacity": draw.choice(["1GiB", "20GiB"])}
    if machines > 1:
        settings |= _fleet(draw, machines, lower, pool)
    if lower:
        settings |= _movement(draw, machines > 1 and not pool, lower > 1)
        settings |= _channels(draw, lower > 1)
    return _views(draw, settings, lower)


#: Settings of a cache of blocks.
_OF_BLOCKS = ("policy", "touch", "eviction_batch_blocks", "scheduler_aware_window", "discard_on_finish")


def _views(draw: random.Random, settings: Settings, lower: int) -> Settings:
    """Return the settings with gates of shared prefixes, or under simplified accounting, sometimes."""
    if settings.get("cache.enabled") is False:
        return settings
    if not lower and draw.random() < 0.4:
        settings = {key: value for key, value in settings.items() if key.partition(".")[2] not in _OF_BLOCKS}
        settings["cache.accounting"] = "simplified"
    gates: dict[str, list[Any]] = {"prefix_view.min_tokens": [300, 2_000], "prefix_view.min_seen": [2, 4]}
    settings = settings | _some(draw, gates, 0.15)
    return settings | _some(draw, {"prefix_view.max_tokens": [2_000, 20_000]}, 0.2)


def _some(draw: random.Random, choices: dict[str, list[Any]], chance: float) -> Settings:
    """Return each of some settings with a chance, at one of its values."""
    return {key: draw.choice(values) for key, values in choices.items() if draw.random() < chance}


def _requests(draw: random.Random) -> Settings:
    kind = draw.choice(["conversational", "conversational", "diverse", "few-shot", "rag", "agentic"])
    own: Settings = {
        "kind": kind,
        "requests": draw.randint(10, 45),
        "arrivals.process": "poisson",
        "arrivals.rate_per_s": draw.choice([0.5, 2, 8, 40]),
        "block_size": 512,
        "output_tokens": {"kind": "uniform", "min": 1, "max": draw.choice([4, 60, 300])},
    }
    if kind in ("conversational", "agentic"):
        own["loop"] = draw.choice(["open", "closed"])
        own["think_time"] = {"kind": "uniform", "min": "100ms", "max": draw.choice(["1s", "20s"])}
        own["turns"] = {"kind": "uniform", "min": 1, "max": draw.randint(2, 6)}
        own["new_input_tokens"] = {"kind": "uniform", "min": 20, "max": draw.choice([300, 3000])}
    return {f"workload.{key}": value for key, value in own.items()}


def _cache(draw: random.Random, lower: int) -> Settings:
    choices: dict[str, list[Any]] = {
        "cache.cache_output": [False],
        "cache.admission": ["prompt"],
        "cache.full_hit": ["skip-prefill"],
        "cache.lookup_time": ["100us"],
        "cache.scheduler_aware_window": [3],
        "cache.discard_on_finish": [True],
        "cache.eviction_batch_blocks": [7],
        "session_view.max_sessions": [1, 3, 10],
        "session_view.ttl": ["2s", "30s"],
    }
    settings = _some(draw, choices, 0.12)
    order = draw.choice(["lru", "lru", "touch", "fifo", "lfu", "ttl:20s", "ttl:3s"])
    if order == "touch":
        settings["cache.touch"] = "admission"
    else:
        settings["cache.policy"] = order
    if lower and draw.random() < 0.1:
        settings["tiers.cpu.policy"] = draw.choice(["lru", "fifo", "lfu", "ttl:10s"])
        settings.pop("cache.touch", None)
    if not lower and draw.random() < 0.1:
        settings = {"cache.enabled": False}
    return {"cache.block_size": draw.choice([64, 128, 512]), **settings}


def _tiers(draw: random.Random, lower: int) -> Settings:
    sizes = {"gpu": draw.choice(["1GiB", "2GiB", "5GiB", "25GiB"])}
    for name in ("cpu", "disk")[:lower]:
        sizes[name] = draw.choice(["1GiB", "4GiB", "20GiB", "unbounded"])
    return {f"tiers.{name}.capacity": size for name, size in sizes.items()}


def _replica(draw: random.Random) -> Settings:
    choices: dict[str, list[Any]] = {
        "replica.max_num_batched_tokens": [256, 2048, 16384],
        "replica.max_num_seqs": [1, 4, 16],
        "replica.queue_order": [
            "longest-prefix",
            "shortest-first",
            "priority",
            "later-turns",
            "program-fcfs",
            "ragcache",
        ],
        "replica.duplicate_prefill": ["wait"],
        "replica.step_overhead": ["50us"],
        "replica.async_scheduling": ["length", "stop-token"],
        "replica.client_offset": ["7ms"],
        "replica.client_offset_per_token": ["1us"],
        "replica.max_model_len": [2000, 9000],
    }
    return _some(draw, choices, 0.15)


def _fleet(draw: random.Random, machines: int, lower: int, pool: bool) -> Settings:
    if pool or draw.random() < 0.6:
        settings: Settings = {"router.policy": draw.choice(["round-robin", *ROUTERS])}
        if settings["router.policy"] == "longest-prefix" and draw.random() < 0.5:
            settings["router.load_threshold"] = 1.2
        if settings["router.policy"] == "overlap-cost" and draw.random() < 0.5:
            settings["router.overlap_weight"] = 0.4
        return settings
    decode = draw.randint(1, machines - 1)
    settings = {"pools.prefill": draw.randint(1, machines - decode), "pools.decode": decode}
    choices: dict[str, list[Any]] = {
        "handover.transfer": ["layer-by-layer"],
        "handover.first_token": ["prefill"],
        "handover.path": ["via-cpu"] if lower else ["gpu-direct"],
    }
    if decode > 1:
        choices["handover.router"] = ["round-robin", *ROUTERS]
    if machines - decode > 1:
        choices["router.policy"] = [*ROUTERS]
    return settings | _some(draw, choices, 0.5)


def _movement(draw: random.Random, several: bool, disk: bool) -> Settings:
    choices: dict[str, list[Any]] = {
        "write.policy": ["through", "through-sync", "selective"],
        "fetch.policy": ["never", "cheaper", "split", "best-effort"],
        "fetch.layer_pipelining": [False],
        "fetch.exclusive": [["cpu->gpu"]],
        "fetch.read_buffer_layers": [1, 2, 5],
    }
    if disk:
        choices["prefetch.policy"] = ["queued", "session"]
        choices["write.policy"] += [{"gpu": "through", "cpu": "back"}, {"gpu": "back", "cpu": "through"}]
        choices["fetch.exclusive"] += [["disk->cpu"], ["cpu->gpu", "disk->cpu"]]
    if several:
        choices["fetch.lookup"] = ["cluster"]
    settings = _some(draw, choices, 0.25)
    if not settings.get("fetch.layer_pipelining", True):
        settings.pop("fetch.read_buffer_layers", None)
    if settings.get("fetch.policy") == "never":
        for key in ("prefetch.policy", "fetch.exclusive", "fetch.read_buffer_layers", "fetch.lookup"):
            settings.pop(key, None)
    elif "prefetch.policy" in settings:
        settings |= _prefetch(draw, settings["prefetch.policy"])
    if disk and settings.get("fetch.lookup") == "cluster" and draw.random() < 0.4:
        settings["fetch.remote_disk"] = "staged"
    return settings


def _prefetch(draw: random.Random, policy: str) -> Settings:
    settings = _some(draw, {"prefetch.share": [0.1, 1.0]}, 0.4)
    if policy == "session":
        return settings | _some(draw, {"prefetch.lead": ["50ms", "5s"]}, 0.5)
    waits = draw.choice(["wait", "timeout", "always"])
    return settings | {"fetch.policy": waits, **({"fetch.timeout": "30ms"} if waits == "timeout" else {})}


def _channels(draw: random.Random, disk: bool) -> Settings:
    if draw.random() < 0.15:
        rail = {"bandwidth": "3GB/s", "edges": ["cpu->gpu"]}
        return {"channels.r1": rail, "channels.r2": rail, "channel_choice": "emptiest"}
    if draw.random() < 0.4:
        return {}
    edges = ["gpu->cpu", "cpu->gpu", *(["cpu->disk", "disk->cpu"] if disk else [])]
    link: Settings = {
        "bandwidth": draw.choice(["2GB/s", "20GB/s"]),
        "edges": edges,
        "latency": draw.choice(["0s", "20us", "5ms"]),
        "scope": draw.choice(["machine", "cluster"]),
        "sharing": draw.choice(["fifo", "fifo", "fair"]),
        "priority": draw.choice(["in-order", "in-order", "loads-first"]),
    }
    pieces = {"piece_overhead": ["3us"], "piece_submit": ["500ns"], "piece_gap": ["200ns"]}
    link |= _some(draw, pieces, 0.2)
    if link["sharing"] == "fifo" and link["latency"] != "0s" and draw.random() < 0.2:
        link["latency_occupies"] = True
    settings: Settings = {"channels.link": link}
    plain = link["sharing"] == "fifo" and link["priority"] == "in-order"
    if plain and draw.random() < 0.3:
        slow = {"at": "3s", "do": "slow", "channel": "link", "share": draw.choice([0, 0.3]), "lasts": "4s"}
        settings["fleet.plan"] = [slow]
    return settings
