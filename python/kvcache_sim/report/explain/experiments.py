"""The settings that the experiments of ``claims`` change; none where a run cannot be varied so."""

from __future__ import annotations

from collections.abc import Callable

from kvcache_sim.base.tiers import COMPUTE, TIERS
from kvcache_sim.base.units import parse_rate_bytes_per_s
from kvcache_sim.report.compare.comparison import LEAST_DIFFERENCE
from kvcache_sim.report.explain.break_even import break_even, net
from kvcache_sim.report.explain.case import Case
from kvcache_sim.report.explain.latency import early_copies_help, rejections
from kvcache_sim.report.explain.tiers import blocks_without_drops, idle_machines, slowest_channel

#: The ``--set`` values of an experiment.
Changes = Callable[[Case], list[str]]
#: Groups and copies of a block that a cache which loses nothing can hold.
_COPIES = 16
_GPU = TIERS[COMPUTE]


def fixed(*changes: str) -> Changes:
    """Return the same changes for every run."""
    return lambda _: list(changes)


def _every_block(case: Case) -> int:
    rows, block = case.run.requests, case.run.block_size_tokens
    tokens = int((rows["input_tokens"] + rows["output_tokens"]).sum())
    return _COPIES * (tokens // block + 2 * len(rows["request"]))


def unbounded(case: Case) -> list[str]:
    """A cache that loses nothing: every token fits on each GPU, or below it where others read there."""
    tier = case.tiers[-1] if _reads_cross_machines(case) else _GPU
    return [f"tiers.{tier}.capacity={_every_block(case)} blocks"]


def _reads_cross_machines(case: Case) -> bool:
    return (case.run.scenario.get("fetch") or {}).get("lookup") == "cluster"


def one_machine(case: Case) -> list[str]:
    """One machine in place of all, whose GPU can hold every token."""
    if case.run.scenario.get("machines"):
        return []
    alone = ["cluster.machines=1", "pools.prefill=0", "pools.decode=0", "router={}", "fleet={}"]
    return [*alone, f"tiers.{_GPU}.capacity={_every_block(case)} blocks"]


def more_machines(case: Case) -> list[str]:
    """Twice the machines, or where the router left some idle, the least loaded."""
    scenario = case.run.scenario
    if idle_machines(case):
        return ["router={policy: least-loaded}"]
    if scenario.get("machines"):
        return []
    pools = {role: count for role, count in (scenario.get("pools") or {}).items() if count}
    twice = [f"pools.{role}={2 * count}" for role, count in pools.items()]
    return [f"cluster.machines={2 * len(case.scenario.settings.machines)}", *twice]


def slower_arrivals(case: Case) -> list[str]:
    """A tenth of the arrival rate."""
    arrivals = (case.run.scenario.get("workload") or {}).get("arrivals")
    if not arrivals:
        return ["trace.speed=0.1"] if case.run.scenario.get("trace") else []
    rate = arrivals.get("rate_per_s")
    return [f"workload.arrivals.rate_per_s={rate / 10}"] if rate else []


def faster_channels(case: Case) -> list[str]:
    """Four times the bandwidth."""
    channels = case.run.scenario.get("channels") or {}
    rates = {name: parse_rate_bytes_per_s(str(channel["bandwidth"])) for name, channel in channels.items()}
    return [f"channels.{name}.bandwidth={4 * rate}B/s" for name, rate in rates.items()]


def wide_channel(case: Case) -> list[str]:
    """The bandwidth that the slowest channel is said to need."""
    name, channels = slowest_channel(case) or "", case.run.scenario.get("channels") or {}
    key = max((key for key in channels if name.startswith(key)), key=len, default=None)
    setting = "cluster.pool.channels" if name.startswith("pool-") else key and f"channels.{key}"
    rate = case.run.summary["channels"][name]["needed_bytes_per_s"]["p99"]
    return [f"{setting}.bandwidth={int(rate)}B/s"] if setting else []


def kept_states(case: Case) -> list[str]:
    """Windows and states kept everywhere, and nothing evicted."""
    return ["cache.retention_interval=null", *unbounded(case)]


def other_policy(case: Case) -> list[str]:
    """Another eviction policy, or where the engine's is the only one, nothing to evict."""
    cache, policy = case.scenario.settings.cache, case.scenario.settings.cache.policy
    if cache.semantics != "tree":
        return unbounded(case)
    return [f"cache.policy={'fifo' if policy == 'lru' else 'lru'}"]


def smaller_blocks(case: Case) -> list[str]:
    """Blocks of half the tokens, and as many tokens on each tier."""
    block, settings = case.run.block_size_tokens, case.scenario.settings
    if block % 2 or settings.cache.groups is not None:
        return []
    sizes = {tier.name: tier.capacity_blocks for tier in settings.machines[0].tiers}
    kept = [f"tiers.{name}.capacity={2 * size} blocks" for name, size in sizes.items() if size]
    return [f"cache.block_size={block // 2}", *kept]


def early_copies(case: Case) -> list[str]:
    """Copies below the GPU as soon as blocks are computed, where that can help."""
    return ["write.policy=through"] if early_copies_help(case) else []


def without(tier: str) -> Changes:
    """No such tier, or where others lie below it, no load from any."""
    return lambda case: [f"tiers.{tier}=null" if case.tiers[-1] == tier else "fetch.policy=never"]


def without_served(source: str) -> Changes:
    """The same where the tier, or the other machines, served enough for a difference of interest."""
    change = without(source) if source in TIERS else without_others
    least = LEAST_DIFFERENCE
    return lambda case: change(case) if case.hit_tokens(source) >= least * case.prompt_tokens else []


def without_loads(case: Case) -> list[str]:
    """The GPUs alone, where that is said to matter."""
    if "without them" not in (net(case) or ""):
        return []
    lower = [f"tiers.{tier}=null" for tier in reversed(case.tiers) if tier != _GPU]
    return [*lower, "cluster.pool=null", "fetch={}", "prefetch={}"]


def cheaper_loads(tier: str) -> Changes:
    """Loads only where they are faster, if none of the run's is."""
    return lambda case: ["fetch.policy=cheaper"] if ": for 0.0 %" in (break_even(tier, case) or "") else []


def without_others(case: Case) -> list[str]:
    """No reads from other machines and no pool."""
    return ["cluster.pool=null" if case.run.scenario["cluster"].get("pool") else "fetch.lookup=local"]


def always_loaded(case: Case) -> list[str]:
    """Loads whatever they cost, where another fetch policy chose."""
    policy = (case.run.scenario.get("fetch") or {}).get("policy", "always")
    return [] if policy == "always" else ["fetch.policy=always"]


def all_admitted(case: Case) -> list[str]:
    """A cache that keeps all it computes in reach."""
    open_to_all = ["cache.enabled=true", "cache.admission=all", "cache.discard_on_finish=false"]
    return [*open_to_all, "prefix_view={}", *unbounded(case)]


def tier_without_drops(case: Case) -> list[str]:
    """The tier below the GPU so large that nothing is dropped."""
    below = TIERS[COMPUTE + 1]
    if "selective" in case.scenario.settings.movement.write.values():
        return ["write.policy=back"]
    blocks = blocks_without_drops(case) or _every_block(case)
    return [f"tiers.{below}.capacity={blocks} blocks"]


def larger_drive(case: Case) -> list[str]:
    """A drive of twice the size."""
    tier = case.tiers[-1]
    sizes = [one.capacity_blocks for one in case.scenario.settings.machines[0].tiers if one.name == tier]
    return [f"tiers.{tier}.capacity={2 * size} blocks" for size in sizes if size]


def enough_for_rejected(case: Case) -> list[str]:
    """Return what serves the rejected prompts: history left out beyond the context, or enough blocks."""
    said = rejections(case) or ""
    sizes = [f"tiers.{_GPU}.capacity={_every_block(case)} blocks"] if "more blocks" in said else []
    return ["replica.on_overflow=slide"] if "slide" in said else sizes
