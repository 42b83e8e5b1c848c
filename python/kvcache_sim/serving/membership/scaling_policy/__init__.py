"""Policies for the number of machines: one small class and one row here per policy.

| name | number of machines |
|---|---|
| `queue` | brings the waiting requests of a machine to a target |
| `requests` | brings the waiting and running requests of a machine to a target |
| `kv-use` | brings the share of the GPU that running requests hold to a target |
| `schedule` | follows a schedule |
"""

from __future__ import annotations

from collections.abc import Callable

from kvcache_sim.base.rows import Rows
from kvcache_sim.policies.plugins.choice import Kind, whole_number
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
