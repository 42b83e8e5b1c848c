"""What is brought up to the cpu before it is asked for: one small class a policy, one row here.

| file | policy |
|---|---|
| `queued` | a request's own blocks, while it waits |
| `session` | a paused session's blocks, a while before its next turn |
| `from_storage` | prefetching from an engine's last tier |
| `prefetcher` | prefetching: bringing blocks up to where they are loaded from before they are asked for |
"""

from __future__ import annotations

from collections.abc import Callable

from kvcache_sim.cache.prefetch.policy import PrefetchPolicy
from kvcache_sim.policies.plugins.choice import Kind, whole_number
from kvcache_sim.rows import Rows

PREFETCHES: Rows[Callable[[], PrefetchPolicy]] = Rows(
    "kvcache_sim.cache.prefetch",
    {"queued": "queued:PrefetchQueued", "session": "session:PrefetchSession"},
)

PREFETCH = Kind(
    "prefetch policy",
    "kvsim.prefetch",
    PREFETCHES,
    {"blocks": lambda given, asked, made: whole_number(given, 0, asked[0].blocks)},
    ("occasions",),
    none="none",
)
