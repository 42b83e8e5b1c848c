"""Every router by name, and plug-ins by ``file.py:Name``."""

from __future__ import annotations

from collections.abc import Callable

from kvcache_sim.policies.plugins.choice import Kind, whole_number
from kvcache_sim.serving.router.cache_aware import CacheAware
from kvcache_sim.serving.router.consistent_hashing import ConsistentHashing
from kvcache_sim.serving.router.contract import Router, RouterView
from kvcache_sim.serving.router.dynamo import DynamoKv
from kvcache_sim.serving.router.kv_aware import KvAware
from kvcache_sim.serving.router.least_loaded import LeastLoaded
from kvcache_sim.serving.router.load_aware import LoadAware
from kvcache_sim.serving.router.longest_prefix import LongestPrefix
from kvcache_sim.serving.router.overlap_cost import OverlapCost
from kvcache_sim.serving.router.power_of_two import PowerOfTwo
from kvcache_sim.serving.router.prefill_cost import PrefillCost
from kvcache_sim.serving.router.random_choice import RandomChoice
from kvcache_sim.serving.router.round_robin import RoundRobin
from kvcache_sim.serving.router.session_affinity import SessionAffinity
from kvcache_sim.serving.router.vllm_dp import VllmDataParallel, VllmDataParallelWaiting
from kvcache_sim.serving.router.weighted import Weighted

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
    "power-of-two": PowerOfTwo,
    "consistent-hashing": ConsistentHashing,
    "weighted": Weighted,
    "kvaware": KvAware,
    "loadaware": LoadAware,
    "dynamo-kv": DynamoKv,
    "vllm-dp": VllmDataParallel,
    "vllm-dp-waiting": VllmDataParallelWaiting,
}

#: Those that look at what the machines have cached.
PREFIX_AWARE = frozenset(
    {
        "cache-aware",
        "longest-prefix",
        "prefill-cost",
        "overlap-cost",
        "weighted",
        "kvaware",
        "loadaware",
        "dynamo-kv",
    }
)

#: Those that go by the engines' own figures, which ``router.view.interval`` makes old.
POLLING = frozenset(
    {
        "least-loaded",
        "session-affinity",
        "longest-prefix",
        "prefill-cost",
        "power-of-two",
        "weighted",
        "vllm-dp",
        "vllm-dp-waiting",
    }
)

#: Those that remember prompts: a trace is read whole for them.
REMEMBERING = frozenset({"dynamo-kv"})


#: Those that look at the clock: as decode routers they keep machines on it.
TIMED = frozenset({"kvaware", "loadaware"})

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
