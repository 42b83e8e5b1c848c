"""Every router by name, and plug-ins by ``file.py:Name``."""

from __future__ import annotations

from collections.abc import Callable

from kvcache_sim.policies.plugins.choice import Kind, whole_number
from kvcache_sim.serving.router.cache_aware import CacheAware
from kvcache_sim.serving.router.contract import Router, RouterView
from kvcache_sim.serving.router.least_loaded import LeastLoaded
from kvcache_sim.serving.router.longest_prefix import LongestPrefix
from kvcache_sim.serving.router.overlap_cost import OverlapCost
from kvcache_sim.serving.router.prefill_cost import PrefillCost
from kvcache_sim.serving.router.random_choice import RandomChoice
from kvcache_sim.serving.router.round_robin import RoundRobin
from kvcache_sim.serving.router.session_affinity import SessionAffinity

MakeRouter = Callable[[RouterView], Router]

#: Router policy → constructor.
ROUTERS: dict[str, MakeRouter] = {
    "round-robin": RoundRobin,
    "random": RandomChoice,
    "least-loaded": LeastLoaded,
    "session-affinity": SessionAffinity,
    "cache-aware": CacheAware,
    "longest-prefix": LongestPrefix,
    "prefill-cost": PrefillCost,
    "overlap-cost": OverlapCost,
}

#: Those that look at what the machines have cached.
PREFIX_AWARE = frozenset({"cache-aware", "longest-prefix", "prefill-cost", "overlap-cost"})


ROUTER = Kind(
    "router",
    "kvsim.routing",
    ROUTERS,
    {"choose": lambda given, asked, made: whole_number(given, 0, len(made[0].replicas) - 1)},
)


def router_maker(policy: str) -> MakeRouter:
    """Return the constructor of a policy's name or of ``file.py:Name``, whose keyword arguments may follow.

    Raises UsageError for an unknown name, and for a plug-in naming the file and line of what is wrong.
    """
    return ROUTER.maker(policy)
