"""How many machines serve: one small class a policy, one row here.

| name | as many machines as |
|---|---|
| `queue` | bring the waiting requests of a machine to a target |
| `requests` | bring the waiting and running requests of a machine to a target |
| `kv-use` | bring the share of the GPU that running requests hold to a target |
| `schedule` | a schedule says |
"""

from __future__ import annotations

from collections.abc import Callable

from kvcache_sim.policies.plugins.choice import Kind, whole_number
from kvcache_sim.rows import Rows
from kvcache_sim.serving.membership.scaling_policy.contract import ScalingPolicy
from kvcache_sim.serving.membership.scaling_policy.settings import ScalingSettings

SCALING_POLICIES: Rows[Callable[[ScalingSettings], ScalingPolicy]] = Rows(
    "kvcache_sim.serving.membership.scaling_policy",
    {
        "queue": "policies:Queue",
        "requests": "policies:Requests",
        "kv-use": "policies:KvUse",
        "schedule": "policies:Schedule",
    },
)

SCALING = Kind(
    "scaling policy",
    "kvsim.scaling",
    SCALING_POLICIES,
    {"wanted": lambda given, asked, made: whole_number(given, 0, 1 << 20)},
)
