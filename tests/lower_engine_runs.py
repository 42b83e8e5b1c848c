"""Clusters with an engine's own lower tiers, and checks of their runs: loads take the time of their channels."""

from dataclasses import replace

from kvcache_sim.cache.settings import TierSettings
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.simulation import simulate
from kvcache_sim.workload.trace import Trace
from support.clusters import cluster


def assert_loads_take_time(settings: ClusterSettings, trace: Trace, tier: str, edge: str) -> None:
    """Check that loads over an edge wait longer on slow channels."""
    rates = (10**9, 10**12)
    wired = [{n: replace(c, bandwidth_bytes_per_s=r) for n, c in settings.channels.items()} for r in rates]
    slow, fast = (simulate(replace(settings, channels=channels), trace) for channels in wired)
    assert slow.counters[f"edge.{edge}.bytes"] > 0
    assert slow.requests[f"fetch_{tier}_ns"].sum() > fast.requests[f"fetch_{tier}_ns"].sum()


def below_a_pool(gpu: int, cpu: int, disk: int, machines: int = 1, policy: str = "lru", rules="lmcache"):
    """Return a cluster with LMCache's tiers, or its server's, below vLLM's pool; 0 disk blocks: no disk."""
    settings = cluster((gpu, cpu, disk), machines)
    cache = replace(settings.cache, semantics="vllm", lower_semantics=rules)
    tiers = (TierSettings("gpu", gpu), TierSettings("cpu", cpu, policy), TierSettings("disk", disk))
    tiers = tiers if disk else tiers[:2]
    return replace(
        settings, cache=cache, machines=tuple(replace(machine, tiers=tiers) for machine in settings.machines)
    )
