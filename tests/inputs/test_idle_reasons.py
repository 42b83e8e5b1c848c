"""Reasons for which settings of an engine, a cache, a router, pools, a fleet or limits have no effect, each alone.

Drawn settings; what is found is compared with tables of (setting, condition), one row a reason.
"""

import random
from contextlib import nullcontext
from types import SimpleNamespace as Any

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.scenario import effects, engine_effects, fleet, objectives, shared_pool
from kvcache_sim.scenario import machines as of_machines
from kvcache_sim.scenario.cluster_sections import (
    FaultSection,
    FleetEventSection,
    FleetSection,
    PoolChannelsSection,
    ScalingSection,
    SharedPoolSection,
)
from kvcache_sim.scenario.machine_sections import ReplicaSection, TierSection, TiersSection
from kvcache_sim.scenario.quantities import Capacity
from kvcache_sim.scenario.request_effects import idle_of_router
from kvcache_sim.scenario.router_section import RouterIndexSection, RouterSection, RouterViewSection
from kvcache_sim.scenario.schema import (
    CacheSection,
    ChannelSection,
    ClusterSection,
    FetchSection,
    HandoverSection,
    PoolsSection,
    PrefetchSection,
    PrefixViewSection,
    ScenarioModel,
    SessionViewSection,
    SloClassSection,
    SloSection,
)
from kvcache_sim.scenario.yaml_tree import Tree
from kvcache_sim.serving.handover.rules import RULES

UNBOUNDED, SIZED, BLOCKS = Capacity(), Capacity(size_bytes=1 << 30), Capacity(blocks=9)


def drawn(seed: int, choices: dict) -> Any:
    draw = random.Random(seed)
    return Any(**{name: draw.choice(values) for name, values in choices.items()})


def paths_of(findings) -> list[str]:
    return sorted(".".join(map(str, path)) for path, *_ in findings)


def due(reasons: list, c: Any) -> list[str]:
    return sorted(name for name, holds in reasons if holds(c))


def machine(replica: ReplicaSection, *lower: str, role: str = "both", gpu: TierSection | None = None):
    gpu = gpu or TierSection(capacity=BLOCKS)
    tiers = TiersSection(gpu=gpu, **{name: TierSection(capacity=BLOCKS) for name in lower})
    return Any(replica=replica, tiers=tiers, role=role)


ENGINE = {
    "instant": [False, False, True],
    "scheduler": ["kvsim", "vllm", "sglang"],
    "semantics": ["tree", "vllm", "sglang"],
    "accounting": ["detailed", "detailed", "simplified"],
    "enabled": [True, True, False],
    "output": [True, False],
    "order": ["fcfs", "priority", "longest-prefix", "ragcache"],
    "wait": [False, True],
    "launch": [False, True],
    "budget": [512, 513],
    "per_sequence": [False, True],
    "lookahead": [False, True],
    "kernels": [False, True],
    "sampling": ["model", "plain"],
    "clocks": [True, False],
    "copies": [False, True],
    "lower": [(), ("cpu",)],
    "prefill": [0, 0, 1],
    "decode": [0, 0, 1],
    "role": [None, None, "both", "decode"],
    "mixed": [False, True],
    "most": [16384, 16385],
    "watermark": [0.0, 0.1],
    "own": [None, None, "scheduler", "copy_submit", "queue_order", "instant"],
}  # fmt: skip
#: Keys that time alone uses, by the choice that sets them.
TIMED = {"step_overhead_per_sequence": "per_sequence", "launch_per_layer": "launch", "async_scheduling": "lookahead", "copy_submit": "copies"}  # fmt: skip
ENGINE_REASONS = [
    *((f"replica.{key}", lambda c, on=on: c.instant and getattr(c, on)) for key, on in TIMED.items()),
    ("replica.sampling", lambda c: c.instant and c.sampling == "plain"),
    ("replica.sustained_clocks", lambda c: c.instant and not c.clocks),
    ("replica.duplicate_prefill", lambda c: c.instant and c.wait),
    ("replica.queue_order", lambda c: c.instant and c.order != "fcfs"),
    ("replica.scheduler", lambda c: c.instant and c.scheduler != "kvsim"),
    ("replica.step_overhead_per_sequence", lambda c: c.per_sequence and c.lookahead),
    ("replica.launch_per_layer", lambda c: c.launch and c.budget == 512),
    ("replica.sampling", lambda c: not c.instant and c.sampling == "plain" and not c.kernels),
    ("replica.sustained_clocks", lambda c: not c.instant and not c.clocks and not c.kernels),
    ("replica.watermark", lambda c: c.watermark and c.scheduler != "vllm"),
    ("replica.max_prefill_tokens", lambda c: c.most != 16384 and c.scheduler != "sglang"),
    ("replica.enable_mixed_chunk", lambda c: c.mixed and c.scheduler != "sglang"),
    ("replica.scheduler", lambda c: c.engine and (c.semantics, c.accounting) != (c.engine, "detailed")),
    ("replica.scheduler", lambda c: c.engine and (c.prefill or c.decode or c.role == "decode")),
    ("replica.queue_order", lambda c: c.engine == "sglang" and c.order != "fcfs"),
    ("replica.queue_order", lambda c: c.engine == "vllm" and c.order not in ("fcfs", "priority")),
    ("replica.duplicate_prefill", lambda c: c.engine and c.wait),
    ("replica.scheduler", lambda c: c.engine == "sglang" and not (c.enabled and c.output)),
    ("replica.duplicate_prefill", lambda c: c.wait and not c.enabled),
    ("replica.queue_order", lambda c: c.order in ("longest-prefix", "ragcache") and not c.enabled),
    ("replica.copy_submit", lambda c: c.copies and not (c.instant or c.prefill or c.lower)),
]


@pytest.mark.parametrize("seed", range(400))
def test_every_reason_of_an_engine(seed: int):
    c = drawn(seed, ENGINE)
    c.engine = None if c.scheduler == "kvsim" else c.scheduler
    replica = ReplicaSection(
        instant=c.instant, scheduler=c.scheduler, queue_order=c.order, sampling=c.sampling,
        duplicate_prefill="wait" if c.wait else "recompute", launch_per_layer=3 * c.launch,
        max_num_batched_tokens=c.budget, step_overhead_per_sequence=2 * c.per_sequence,
        async_scheduling="length" if c.lookahead else "none", sustained_clocks=c.clocks,
        step_time="roofline:llama-3-8b@h100" if c.kernels else "h100-llama-3.1-8b-tp1",
        copy_submit=5 * c.copies, enable_mixed_chunk=c.mixed, max_prefill_tokens=c.most,
        watermark=c.watermark,
    )  # fmt: skip
    model = ScenarioModel(
        replica=replica,
        cache=CacheSection(
            enabled=c.enabled, cache_output=c.output, semantics=c.semantics, accounting=c.accounting
        ),
        machines=[{"role": c.role or "both", "replica": c.own and {c.own: 1}}] if c.role or c.own else [],
        pools=PoolsSection(prefill=c.prefill, decode=c.decode),
    )
    findings = list(engine_effects.of_engine(model, (machine(replica, *c.lower),)))
    here = f"replica.{c.own}"
    expected = [f"machines.0.{name}" if name == here else name for name in due(ENGINE_REASONS, c)]
    expected += ["machines.0.replica.instant"] * (c.own == "instant")
    assert paths_of(findings) == sorted(expected)
    findings = [one for one in findings if one[0][-1] != "instant"]
    ruled_out = {type(one).__name__ for one in findings if one[0][-1] == "scheduler"}
    assert ruled_out <= {"tuple" if c.instant else "Contradiction"}
    assert {type(one).__name__ for one in findings if one[0][-1] != "scheduler"} <= {"tuple"}


@pytest.mark.parametrize("seed", range(120))
def test_every_reason_of_a_context_window(seed: int):
    """The model of the default step times has 131,072 tokens of context."""
    c = drawn(seed, {
        "common": [None, 100, 131_072, 131_073], "own": [None, 100, 200], "named": [False, True],
        "long": [False, True], "slide": [False, True], "kind": [None, "rag", "agentic", "no-such"],
        "models": [None, object()],
    })  # fmt: skip
    settings = {"allow_long_max_model_len": c.long, "on_overflow": "slide" if c.slide else "reject"}
    replica = ReplicaSection(max_model_len=c.common, **settings)
    own = {"max_model_len": c.own, "on_overflow": "reject"}
    model = ScenarioModel(
        model="llama-3.1-8b", replica=replica, machines=[{"replica": own if c.named else {}}], models=c.models,
        workload={} if c.kind is None else {"kind": c.kind},
    )  # fmt: skip
    here = ReplicaSection(max_model_len=c.own, allow_long_max_model_len=c.long) if c.named else replica
    found = engine_effects.of_context_window(model, (machine(here), machine(replica)))
    reasons = [
        ("machines.0.replica.max_model_len", lambda c: c.named and c.own != c.common),
        ("machines.0.replica.on_overflow", lambda c: c.named and c.slide),
        ("replica.allow_long_max_model_len", lambda c: c.long and not c.models and c.common != 131_073),
        ("replica.on_overflow", lambda c: c.slide and (c.common is None or c.kind == "rag")),
    ]
    assert paths_of(found) == due(reasons, c)


CACHE = {
    "enabled": [True, True, False],
    "semantics": ["tree", "vllm"],
    "instant": [False, True],
    "gpu": [UNBOUNDED, BLOCKS, SIZED],
    "cpu": [None, BLOCKS, UNBOUNDED],
    "own": [None, "lru", "fifo"],
    "window": [False, True],
    "admission": ["all", "prompt"],
    "discard": [False, True],
    "output": [True, False],
    "scheduler": ["kvsim", "vllm"],
    "full": ["prefill-remainder", "decode"],
    "touch": ["release", "admission"],
    "batch": [1, 2],
    "overflow": ["wait", "drop"],
    "role": ["both", "prefill"],
    "kv": [None, 131_072, 999],
}
#: Keys that need a cache; the semantics are also those of vLLM's allocations.
OF_A_CACHE = {"admission": "all", "touch": "release", "batch": 1, "overflow": "wait", "full": "prefill-remainder", "discard": False, "window": False, "output": True}  # fmt: skip
WRITTEN = {"batch": "eviction_batch_blocks", "full": "full_hit", "discard": "discard_on_finish", "window": "scheduler_aware_window", "output": "cache_output"}  # fmt: skip
CACHE_REASONS = [
    ("tiers.cpu", lambda c: c.cpu is not None and not c.enabled),
    ("tiers.cpu", lambda c: c.cpu is not None and c.semantics == "vllm"),
    ("tiers.gpu.capacity", lambda c: c.gpu is UNBOUNDED and c.semantics == "vllm"),
    ("tiers.gpu.policy", lambda c: c.own == "fifo" and (not c.enabled or c.semantics == "vllm" or c.gpu is UNBOUNDED)),
    ("cache.scheduler_aware_window", lambda c: c.window and c.instant),
    ("cache.admission", lambda c: c.admission == "prompt" and c.discard),
    ("cache.admission", lambda c: c.admission == "prompt" and not c.output),
    ("cache.full_hit", lambda c: c.full == "decode" and c.scheduler != "kvsim"),
    ("cache.semantics", lambda c: not c.enabled and c.semantics != "tree" and c.scheduler != "vllm"),
    *(
        (f"cache.{WRITTEN.get(name, name)}", lambda c, name=name, usual=usual: not c.enabled and getattr(c, name) != usual)
        for name, usual in OF_A_CACHE.items()
    ),
    ("cache.touch", lambda c: c.touches and c.instant and c.cpu is None),
    ("cache.touch", lambda c: c.touches and c.own == "fifo"),
    ("cache.touch", lambda c: c.touches and c.gpu is UNBOUNDED and c.cpu in (None, UNBOUNDED)),
    ("cache.eviction_batch_blocks", lambda c: c.enabled and c.batch > 1 and c.gpu is UNBOUNDED and c.cpu in (None, UNBOUNDED)),
    ("cache.overflow", lambda c: c.enabled and c.overflow == "drop" and c.semantics == "tree" and c.cpu in (None, UNBOUNDED)),
    ("cache.kv_bytes_per_token", lambda c: c.kv == 999 and c.cpu is None and c.role == "both" and c.gpu is not SIZED),
]  # fmt: skip


@pytest.mark.parametrize("seed", range(400))
def test_every_reason_of_a_cache(seed: int):
    """KV of the model has 131,072 bytes a token."""
    c = drawn(seed, CACHE)
    c.touches = c.enabled and c.touch == "admission"
    replica = ReplicaSection(instant=c.instant, scheduler=c.scheduler)
    cache = CacheSection(
        enabled=c.enabled, semantics=c.semantics, scheduler_aware_window=c.window, admission=c.admission,
        discard_on_finish=c.discard, cache_output=c.output, full_hit=c.full, touch=c.touch,
        eviction_batch_blocks=c.batch, overflow=c.overflow, kv_bytes_per_token=c.kv,
    )  # fmt: skip
    tiers = TiersSection(
        gpu=TierSection(capacity=c.gpu, policy=c.own),
        cpu=None if c.cpu is None else TierSection(capacity=c.cpu),
    )
    model = ScenarioModel(model="llama-3.1-8b", replica=replica, cache=cache, tiers=tiers)
    machines = (Any(replica=replica, tiers=tiers, role=c.role),)
    rules = (effects._tiers, effects._touch, effects._eviction_batch, effects._kv_size)
    assert paths_of(one for rule in rules for one in rule(model, machines)) == due(CACHE_REASONS, c)


#: By policy: the keys that it reads; whether it reads caches, or the loads that the engines report.
READS = {
    "round-robin": ((), False, False),
    "least-loaded": ((), False, True),
    "weighted": (("scorers",), True, True),
    "cache-aware": (("cache_threshold",), True, False),
    "longest-prefix": (("load_threshold",), True, True),
    "prefill-time": ((), True, False),
    "overlap-cost": (("overlap_weight",), True, False),
    "lmetric": (("hotspot_detection", "class_prefix_blocks", "window_requests"), True, False),
    "dynamo-kv": (("overlap_weight",), True, False),
    "own.py:Rule": None,
}
ROUTER = {
    "policy": list(READS), "second": ["least-loaded", "weighted", "own.py:Rule"], "handed": [False, False, True],
    "routed": [1, 2, 2], "kind": ["truth", "estimated", "gateway-tree"], "blocks": [None, 20],
    "simplified": [False, True], "instant": [False, True], "enabled": [True, False],
    "scorers": [{"queue": 1.0}, {"queue": 0.0}], "hotspot_detection": [True, False],
    "class_prefix_blocks": [4, 5], "window_requests": [1000, 9], "load_threshold": [2.0, 3.0],
    "overlap_weight": [1.0, 2.0], "cache_threshold": [0.3, 0.4], "evicts": [False, True], "delay": [0, 7],
    "interval": [0, 5],
}  # fmt: skip
USUAL = {"hotspot_detection": True, "class_prefix_blocks": 4, "window_requests": 1000, "load_threshold": 2.0, "overlap_weight": 1.0, "cache_threshold": 0.3}  # fmt: skip


def reasons_of_a_router(c: Any) -> list[str]:
    """The reasons one by one; a plug-in may read whatever is there."""
    policies = [c.policy, c.second] if c.handed else [c.policy]
    own = any(READS.get(policy) is None for policy in policies)
    given = ["scorers", *(key for key, usual in USUAL.items() if getattr(c, key) != usual)]
    named = {"view": c.interval, "index_blocks": c.blocks, "index_delay": c.delay, "index": c.kind != "truth" or c.evicts, "policy": c.policy != "round-robin"}  # fmt: skip
    found = []
    if c.routed == 1:
        found += [f"router.{key}" for key in given]
        found += [f"router.{key}" for key, on in named.items() if on and not (key == "view" and c.handed)]
    if not own:
        read = {key for policy in policies for key in READS[policy][0]}
        found += [f"router.{key}" for key in given if key not in read]
    if not c.hotspot_detection:
        found += [f"router.{key}" for key in ("class_prefix_blocks", "window_requests") if key in given]
    found += ["router.scorers"] * (c.scorers == {"queue": 0.0})
    supported = {"weighted": "estimated", "cache-aware": "gateway-tree"}.get(c.policy)
    found += ["router.index.kind"] * (c.kind not in ("truth", supported))
    found += ["router.index.eviction_interval"] * (c.evicts and c.kind != "gateway-tree")
    _, caches, loads = READS[c.policy] or ((), False, False)
    if c.blocks:
        found += ["router.index_blocks"] * (
            c.policy == "prefill-time" or not (caches or READS[c.policy] is None)
        )
        found += ["router.index_blocks"] * c.simplified
    found += ["router.index_delay"] * (c.delay > 0 and c.blocks is None)
    found += ["router.index_delay"] * (c.delay > 0 and c.kind != "truth")
    polled = own or loads or (c.handed and c.second in ("least-loaded", "weighted"))
    if c.interval:
        found += ["router.view.interval"] * (c.instant or (c.routed > 1 and not polled))
    found += ["router.policy"] * (c.policy == "least-loaded" and c.instant)
    found += ["router.policy"] * (caches and not c.enabled)
    return found + ["router.policy"] * (c.policy in ("lmetric", "dynamo-kv") and c.simplified)


@pytest.mark.parametrize("seed", range(400))
def test_every_reason_of_a_router(seed: int):
    c = drawn(seed, ROUTER)
    router = RouterSection(
        policy=c.policy, scorers=c.scorers, index_blocks=c.blocks, index_delay=c.delay,
        view=RouterViewSection(interval=c.interval),
        index=RouterIndexSection(kind=c.kind, **({"eviction_interval": 5} if c.evicts else {})),
        **{key: getattr(c, key) for key in USUAL},
    )  # fmt: skip
    model = ScenarioModel(
        router=router, handover=HandoverSection(router=c.second), pools=PoolsSection(prefill=int(c.handed)),
        cache=CacheSection(enabled=c.enabled, accounting="simplified" if c.simplified else "detailed"),
        replica=ReplicaSection(instant=c.instant),
    )  # fmt: skip
    assert paths_of(idle_of_router(model, c.routed)) == sorted(reasons_of_a_router(c))


SHARED = {
    "pool": [None, None, "auto", "blocks"], "own": [None, "ttl:5s", "fifo"], "policy": ["lru", "ttl:9s"],
    "enabled": [True, True, False], "semantics": ["tree", "tree", "vllm"], "lower": [(), ("cpu",), ("disk",)],
    "fetch": ["always", "never"], "limit": [None, 5], "instant": [False, True],
    "named": ["", "a", "others", "9a", "a" * 32, "a" * 33], "classed": [None, 7],
}  # fmt: skip


@pytest.mark.parametrize("seed", range(150))
def test_every_reason_of_a_pool_and_of_limits(seed: int):
    c = drawn(seed, SHARED)
    capacity = Capacity(auto=True) if c.pool == "auto" else BLOCKS
    pool = None if c.pool is None else SharedPoolSection(capacity=capacity, policy=c.own)
    classes = {c.named: SloClassSection(when=None, e2e=c.classed)} if c.named else {}
    model = ScenarioModel(
        cluster=ClusterSection(pool=pool), fetch=FetchSection(policy=c.fetch),
        cache=CacheSection(enabled=c.enabled, semantics=c.semantics, policy=c.policy),
        slo=SloSection(ttft=c.limit, classes=classes), replica=ReplicaSection(instant=c.instant),
    )  # fmt: skip
    reasons = [
        ("cluster.pool.capacity", lambda c: c.pool == "auto"),
        ("cluster.pool.policy", lambda c: c.pool and (c.own or c.policy).startswith("ttl")),
        ("cluster.pool", lambda c: c.pool and not (c.enabled and c.semantics == "tree" and c.lower == ("cpu",) and c.fetch == "always")),
    ]  # fmt: skip
    other = machine(model.replica)
    found = list(shared_pool.findings(model, [other, machine(model.replica, *c.lower)]))
    assert paths_of(found) == due(reasons, c)
    ruled = {"auto is for the tier that computes", "the pool does not support a time to live", "only blocks of the tree are stored there: set cache.semantics tree"}  # fmt: skip
    assert all((type(one).__name__ == "Contradiction") == (one[1] in ruled) for one in found)
    expected = ["slo"] * (c.limit is None and not (c.named and c.classed)) + ["slo"] * c.instant
    expected += [f"slo.classes.{c.named}"] * (c.named in ("others", "9a", "a" * 33))
    assert paths_of(objectives.findings(model)) == expected


HANDED = {
    "roles": [("both",), ("prefill",), ("decode",), ("prefill", "decode"), ("prefill", "both"), ("decode", "both"), ("prefill", "decode", "decode")],
    "named": [False, True], "prefill": [0, 1], "instant": [False, True], "simplified": [False, True],
    "first": ["round-robin", "dynamo-kv", "lmetric"], "second": ["least-loaded", "dynamo-kv", "lmetric"],
    "decide": ["always", *RULES], "path": ["gpu-direct", "via-cpu"], "threshold_tokens": [None, 5],
    "threshold_share": [0.7, 0.5], "min_prompt_tokens": [0, 9], "prefill_busy": [None, 0.5], "lower": [(), ("cpu",)],
}  # fmt: skip
#: By rule: the figures that it reads; whether it asks the first router, or the second one again.
DECIDES = {
    "always": ((), False, False),
    "threshold": (("threshold_tokens",), False, False),
    "shorter-wait": ((), True, False),
    "llm-d": (("threshold_tokens", "min_prompt_tokens"), False, False),
    "dynamo-isl-bounding": (("threshold_tokens", "threshold_share"), False, True),
    "dynamo-prefill-load": (("prefill_busy",), True, True),
    "dynamo-isl-or-load": (("threshold_tokens", "threshold_share", "prefill_busy"), True, True),
}
FIGURES = {"threshold_tokens": None, "threshold_share": 0.7, "min_prompt_tokens": 0, "prefill_busy": None}


def reasons_of_pools(c: Any) -> list[tuple[str, bool]]:
    """Each (setting, whether others rule it out); only ``lmetric`` counts each machine that it names."""
    ends = [
        role
        for role, other in (("prefill", "decode"), ("decode", "prefill"))
        if role in c.roles and other not in c.roles
    ]
    found = []
    if ends and not (ends == ["prefill"] and "both" in c.roles):
        found.append((f"machines.{c.roles.index(ends[0])}.role" if c.named else f"pools.{ends[0]}", True))
    given = [key for key, usual in FIGURES.items() if getattr(c, key) != usual]
    changed = [
        *given,
        *(["path"] if c.path == "via-cpu" else []),
        *(["router"] if c.second != "least-loaded" else []),
    ]
    changed += ["decide"] if c.decide != "always" else []
    if "prefill" not in c.roles:
        return found + [(f"handover.{key}", False) for key in changed]
    section = "pools" if c.prefill else "machines"
    found += [(section, True)] * (c.instant + c.simplified)
    others = len([role for role in c.roles if role != "prefill"])
    found += [("handover.router", False)] * (c.second != "least-loaded" and others == 1)
    keys, first, second = DECIDES[c.decide]
    found += [(f"handover.{key}", False) for key in given if key not in keys]
    found += [("handover.decide", True)] * ("prefill_busy" in keys and c.prefill_busy is None)
    found += [("handover.decide", True)] * (
        (second and c.second == "lmetric") + (first and c.first == "lmetric")
    )
    return found + [("handover.path", False)] * (c.path == "via-cpu" and not c.lower)


@pytest.mark.parametrize("seed", range(300))
def test_every_reason_of_pools_and_handovers(seed: int):
    c = drawn(seed, HANDED)
    model = ScenarioModel(
        handover=HandoverSection(path=c.path, router=c.second, decide=c.decide, **{key: getattr(c, key) for key in FIGURES}),
        router=RouterSection(policy=c.first), pools=PoolsSection(prefill=c.prefill),
        cache=CacheSection(accounting="simplified" if c.simplified else "detailed"),
        replica=ReplicaSection(instant=c.instant), machines=[{"role": role} for role in c.roles] if c.named else [],
    )  # fmt: skip
    found = of_machines.of_roles(model, [machine(model.replica, *c.lower, role=role) for role in c.roles])
    own = [(".".join(map(str, one[0])), type(one).__name__ == "Contradiction") for one in found]
    assert sorted(own) == sorted(reasons_of_pools(c))


KINDS = ["join", "drain", "lose", "lose-tier", "lose-index", "lose-pool", "slow", "flush"]
FLEET = {
    "kinds": [(), ("join",), ("drain",), ("lose",), ("slow",), ("flush",), ("lose-index", "lose"), ("lose-pool", "slow"), ("lose-tier",)],
    "fault": [None, None, "lose", "slow", "lose-index"], "repair": [None, 3], "until": [None, 9], "startup": [0, 2],
    "fails": [False, True], "scaling": [False, False, True], "machines": [False, True], "role": ["both", "prefill"],
    "lookup": ["local", "cluster"], "pool": [None, "fifo", "fair"], "buffer": [None, 2], "prefetch": ["none", "session"],
    "blocks": [None, 20], "kind": ["truth", "estimated"], "interval": [0, 5], "dp": [1, 1, 2], "instant": [False, True],
    "channel": [None, "plain", "fair", "loads-first", "cluster"], "simplified": [False, True], "engine": [False, True],
}  # fmt: skip


def reasons_of_a_fleet(c: Any) -> list[str]:
    """The reasons one by one; events of their own are one row each."""
    happens = {*c.kinds, c.fault} - {None}
    moves = bool(happens & {"join", "drain", "lose"})
    found = ["fleet.faults"] * (c.fault is not None and c.until is None)
    found += ["fleet.faults_until"] * (c.fault is None and c.until is not None)
    emptied = c.simplified + c.engine
    if c.scaling:
        found += ["fleet.scaling"] * (moves + c.machines + emptied)
    joins = "join" in happens or (c.fault == "lose" and c.repair)
    found += ["fleet.startup"] * (c.startup > 0 and not joins and not c.scaling)
    found += ["fleet.in_flight"] * (c.fails and "lose" not in happens)
    for n, do in enumerate(c.kinds):
        here = [
            do == "lose-pool" and c.pool is None,
            do == "lose-index" and not c.blocks and c.kind == "truth",
        ]
        here += [
            do == "lose-tier" and c.simplified,
            do == "flush" and c.simplified,
            do == "flush" and c.engine,
        ]
        found += [f"fleet.plan.{n}"] * sum(here)
    found += ["fleet.faults.0"] * (c.fault == "lose-index" and not c.blocks and c.kind == "truth")
    found += ["fleet.faults.0.repair"] * (c.fault == "lose-index" and c.repair is not None)
    whole = "fleet." + ("plan" if c.kinds else "faults" if c.fault else "scaling")
    by_event = c.channel in ("fair", "loads-first")
    found += [whole] * ("slow" in happens and (by_event or c.pool == "fair"))
    found += [whole] * ("slow" in happens and c.buffer is not None)
    found += [whole] * ((bool(happens) or c.scaling) and c.instant)
    if not (moves or c.scaling):
        return found
    return found + [whole] * sum((
        c.role != "both", c.lookup == "cluster", c.pool is not None, c.buffer is not None, c.prefetch == "session",
        bool(c.blocks or c.kind != "truth"), c.interval > 0, by_event or c.channel == "cluster",
        c.dp > 1 and (bool(happens & {"join", "lose"}) or c.scaling),
    ))  # fmt: skip


@pytest.mark.parametrize("seed", range(400))
def test_every_reason_of_a_fleet(seed: int):
    c = drawn(seed, FLEET)
    to = {"lose-tier": {"machine": 0, "tier": "cpu"}, "slow": {"channel": "cpu-to-gpu"}, "drain": {"machine": 0}, "lose": {"machine": 1}}  # fmt: skip
    channel = {"bandwidth": 9, "edges": ["cpu->gpu"], "sharing": "fair" if c.channel == "fair" else "fifo"}
    channel |= {"priority": "loads-first" if c.channel == "loads-first" else "in-order", "scope": "cluster" if c.channel == "cluster" else "machine"}  # fmt: skip
    on = {"channel": "cpu-to-gpu"} if c.fault == "slow" else {}
    model = ScenarioModel(
        fleet=FleetSection(
            plan=[FleetEventSection(at=1, do=do, **to.get(do, {})) for do in c.kinds],
            faults=[FaultSection(do=c.fault, mtbf=5, repair=c.repair, **on)] if c.fault else [],
            faults_until=c.until, startup=c.startup, in_flight="fail" if c.fails else "retry",
            scaling=ScalingSection() if c.scaling else None,
        ),
        machines=[{}] if c.machines else [], fetch=FetchSection(lookup=c.lookup, read_buffer_layers=c.buffer),
        cluster=ClusterSection(machines=2, pool=c.pool and SharedPoolSection(capacity=BLOCKS, channels=PoolChannelsSection(sharing=c.pool))),
        prefetch=PrefetchSection(policy=c.prefetch), channels={} if c.channel is None else {"wire": ChannelSection(**channel)},
        router=RouterSection(index_blocks=c.blocks, index=RouterIndexSection(kind=c.kind), view=RouterViewSection(interval=c.interval)),
        replica=ReplicaSection(dp=c.dp, instant=c.instant), cache=CacheSection(accounting="simplified" if c.simplified else "detailed"),
        tiers=TiersSection(gpu=TierSection(capacity=BLOCKS), cpu=TierSection(capacity=BLOCKS, semantics="lmcache" if c.engine else None)),
    )  # fmt: skip
    machines = (machine(model.replica, "cpu"), machine(model.replica, "cpu", role=c.role))
    assert paths_of(fleet.findings(model, machines)) == sorted(reasons_of_a_fleet(c))


def found_of(event, **settings) -> list[str]:
    model = ScenarioModel(**settings)
    return paths_of(fleet._of_one(model, (machine(model.replica, "cpu"),) * 2, ("e",), event))


@pytest.mark.parametrize("do", KINDS)
def test_each_event_takes_its_own_keys(do: str):
    """A join that names a machine is refused elsewhere."""
    takes = {"join": {"machine", "tier", "channel", "share", "lasts"}, "drain": {"machine"}, "lose": {"machine"}, "lose-tier": {"machine", "tier"}, "slow": {"machine", "channel", "share", "lasts"}, "flush": {"machine"}}  # fmt: skip
    given = {"machine": 0, "tier": "disk", "channel": "cpu-to-gpu", "share": 0.5, "lasts": 5}
    pool = ClusterSection(pool=SharedPoolSection(capacity=BLOCKS))
    found = found_of(
        FleetEventSection(at=1, do=do, **given), cluster=pool, router=RouterSection(index_blocks=9)
    )
    refused = [f"e.{key}" for key in given if key not in takes.get(do, set())]
    assert found == sorted(refused + ["e"] * (do == "lose-tier"))  # not every machine has a disk
    if do == "lose-tier":
        assert not found_of(FleetEventSection(at=1, do=do, machine=0, tier="cpu"))
        assert found_of(FleetEventSection(at=1, do=do, machine=0, tier="gpu")) == ["e"]


@pytest.mark.parametrize(
    ("channel", "number", "found"),
    [("cpu-to-gpu", 1, []), ("cpu-to-gpu", 2, ["e.machine"]), ("cpu-to-gpu", None, []), ("pool-read", None, ["e"]),
     ("wire", 0, ["e.machine"]), ("wire", None, []), (None, None, ["e"]), ("none", 5, ["e", "e.machine"])],
)  # fmt: skip
def test_a_slow_channel_is_one_that_is_there(channel, number, found):
    wire = {"wire": ChannelSection(bandwidth=9, edges=["cpu->gpu"], scope="cluster")}
    event = FleetEventSection(at=1, do="slow", channel=channel, machine=number)
    assert found_of(event, channels=wire) == found
    assert not found_of(FleetEventSection(at=1, do="slow", channel="pool-read"), cluster=ClusterSection(pool=SharedPoolSection(capacity=BLOCKS)))  # fmt: skip


@pytest.mark.parametrize(
    ("name", "gpus", "cp", "block", "fits"),
    [
        ("llama-3.1-8b", 8, 2, 16, False),  # 8 KV heads: no copies on 8 GPUs
        ("llama-3.1-8b", 16, 2, 16, True),
        ("llama-3.1-8b", 16, 4, 16, False),
        ("qwen2.5-7b", 16, 4, 16, True),  # 4 KV heads: 4 copies on 16 GPUs
        ("qwen2.5-7b", 16, 8, 16, False),
        ("deepseek-v3", 8, 8, 16, True),  # a latent: a copy a GPU
        ("deepseek-v3", 8, 3, 15, False),  # 8 GPUs are no multiple
        ("deepseek-v3", 8, 3, 16, False),
        ("deepseek-v3", 8, 1, 16, True),
        ("deepseek-v3", 8, None, 16, True),
    ],
)
def test_gpus_that_hold_copies_of_kv_can_share_tokens_out(name, gpus, cp, block, fits):
    replica = ReplicaSection(cp=cp, step_time=f"roofline:{name}@h100:tp{gpus}")
    model = ScenarioModel(model=name, replica=replica, cache=CacheSection(block_size=block))
    found = list(engine_effects.of_parallel(model, (machine(replica),)))
    assert paths_of(found) == ["replica.cp"] * (not fits)
    assert all(("no multiple of it" in one.why) == bool(cp and block % cp) for one in found)


@pytest.mark.parametrize("given", [None, 2, 3, 4, 6])
@pytest.mark.parametrize(("prefill", "decode", "dp"), [(0, 0, 1), (1, 2, 1), (2, 2, 1), (0, 0, 2), (0, 0, 3)])
@pytest.mark.parametrize("policy", [None, "random"])
def test_pools_and_ranks_have_their_machines(given, prefill, decode, dp, policy):
    """As many as are needed unless the number is given: then no fewer than pools have, and whole engines."""
    model = ScenarioModel(
        pools=PoolsSection(prefill=prefill, decode=decode), replica=ReplicaSection(dp=dp),
        cluster=ClusterSection(machines=given or 1), router=RouterSection(policy=policy or "least-loaded"),
    )  # fmt: skip
    tree = Tree(
        {"cluster": {"machines": given} if given else {}, "router": {"policy": policy} if policy else {}}
    )
    fewer, ragged = given and given < prefill + decode, given and given % dp
    with pytest.raises(UsageError) if fewer or ragged else nullcontext():
        made = of_machines.with_machines_of_ranks(of_machines.with_machines_of_pools(model, tree), tree)
        assert made.cluster.machines == (given or max(prefill + decode, dp))
        assert made.router.policy == (policy or ("least-loaded" if dp == 1 else "vllm-dp"))
        role = ["prefill"] * prefill + ["decode"] * decode + ["both"]
        assert [of_machines.pool_role(made, index) for index in range(len(role))] == role


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("semantics", ["tree", "sglang"])
@pytest.mark.parametrize("view", ["session_view", "prefix_view"])
@pytest.mark.parametrize("given", [(), ("max_tokens",), ("max_tokens", "first")])
def test_views_need_the_tree_of_a_cache(enabled, semantics, view, given):
    """But for the most tokens of a session, which shorten prompts."""
    section, first = (
        (SessionViewSection, "ttl") if view == "session_view" else (PrefixViewSection, "min_seen")
    )
    names = [first if name == "first" else name for name in given]
    model = ScenarioModel(
        cache=CacheSection(enabled=enabled, semantics=semantics), **{view: section(**dict.fromkeys(names, 9))}
    )
    judged = [name for name in names if (view, name) != ("session_view", "max_tokens")]
    expected = sorted(f"{view}.{name}" for name in judged * ((not enabled) + (semantics != "tree")))
    assert paths_of(effects._views(model)) == expected
