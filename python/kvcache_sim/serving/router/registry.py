"""Every router by name, and plug-ins by ``file.py:Name``."""

from __future__ import annotations

from collections.abc import Callable

from kvcache_sim.base.rows import Rows
from kvcache_sim.policies.plugins.choice import Kind, whole_number
from kvcache_sim.serving.router.contract import Needs, Router, RouterView

MakeRouter = Callable[[RouterView], Router]

#: Router policy → constructor.
ROUTERS: Rows[MakeRouter] = Rows(
    "kvcache_sim.serving.router",
    {
        "round-robin": "prefix:RoundRobin",
        "random": "prefix:RandomChoice",
        "least-loaded": "prefix:LeastLoaded",
        "session-affinity": "prefix:SessionAffinity",
        "cache-aware": "cache_aware:CacheAware",
        "longest-prefix": "prefix:LongestPrefix",
        "prefill-cost": "prefix:PrefillCost",
        "prefill-time": "prefix:PrefillTime",
        "overlap-cost": "prefix:OverlapCost",
        "power-of-two": "prefix:PowerOfTwo",
        "consistent-hashing": "production_stack:ConsistentHashing",
        "weighted": "weighted:Weighted",
        "kvaware": "production_stack:KvAware",
        "loadaware": "production_stack:LoadAware",
        "dynamo-kv": "dynamo_kv:DynamoKv",
        "lmetric": "gateway_rules:Lmetric",
        "dynamo-two-tier-cost-fn": "gateway_rules:TwoTier",
        "dynamo-two-tier-adaptive": "gateway_rules:TwoTierAdaptive",
        "aimd": "gateway_rules:Aimd",
        "vllm-dp": "vllm_dp:VllmDataParallel",
        "vllm-dp-waiting": "vllm_dp:VllmDataParallelWaiting",
    },
)

ROUTER = Kind(
    "router",
    "kvsim.routing",
    ROUTERS,
    {"choose": lambda given, asked, made: whole_number(given, 0, len(made[0].replicas) - 1)},
)


def needs_of(policy: str) -> Needs:
    """Return the inputs of a built-in router; a plug-in, not loaded for that, may read published counts."""
    needs: Needs = getattr(ROUTERS.get(policy), "needs", Needs(published=policy not in ROUTERS))
    return needs


def can_advise(policy: str) -> bool:
    """Return True if a built-in router can be asked without counting its answer as followed: ``ask``."""
    return hasattr(ROUTERS.get(policy), "ask")


def readers_of(key: str) -> list[str]:
    """Return the routers that read a key of the section ``router``. Cost: an import of every router."""
    return [name for name in ROUTERS if key in needs_of(name).keys]


def router_maker(policy: str) -> MakeRouter:
    """Return the constructor of a policy's name or of ``file.py:Name``, whose keyword arguments may follow.

    Raises UsageError for an unknown name, and for an invalid plug-in, with its file and line.
    """
    return ROUTER.maker(policy)
