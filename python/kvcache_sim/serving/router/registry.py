"""Every router by name, and plug-ins by ``file.py:Name``."""

from __future__ import annotations

from collections.abc import Callable

from kvcache_sim.policies.plugins.choice import Kind, whole_number
from kvcache_sim.rows import Rows
from kvcache_sim.serving.router.contract import Router, RouterView

MakeRouter = Callable[[RouterView], Router]

#: Router policy → constructor.
ROUTERS: Rows[MakeRouter] = Rows(
    "kvcache_sim.serving.router",
    {
        "round-robin": "round_robin:RoundRobin",
        "random": "random_choice:RandomChoice",
        "least-loaded": "least_loaded:LeastLoaded",
        "session-affinity": "session_affinity:SessionAffinity",
        "cache-aware": "cache_aware:CacheAware",
        "longest-prefix": "longest_prefix:LongestPrefix",
        "prefill-cost": "prefill_cost:PrefillCost",
        "overlap-cost": "overlap_cost:OverlapCost",
        "power-of-two": "power_of_two:PowerOfTwo",
        "consistent-hashing": "consistent_hashing:ConsistentHashing",
        "weighted": "weighted:Weighted",
        "kvaware": "kv_aware:KvAware",
        "loadaware": "load_aware:LoadAware",
        "dynamo-kv": "dynamo:DynamoKv",
        "vllm-dp": "vllm_dp:VllmDataParallel",
        "vllm-dp-waiting": "vllm_dp:VllmDataParallelWaiting",
    },
)

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
