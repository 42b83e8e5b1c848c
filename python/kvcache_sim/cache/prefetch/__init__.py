"""Prefetching: blocks are copied to the cpu tier before their request is admitted, by the core or a plug-in.

``queued`` prefetches a request's blocks while it waits, ``session`` a paused session's blocks before its
next turn. Both are in ``rust/core/src/machine/prefetch.rs``.
"""

from __future__ import annotations

from kvcache_sim.policies.plugins.choice import Kind, whole_number

#: Built-in policies, each named after its occasion.
PREFETCHES = ("queued", "session")

PREFETCH = Kind(
    "prefetch policy",
    "kvsim.prefetch",
    {},
    {"blocks": lambda given, asked, made: whole_number(given, 0, asked[0].blocks)},
    ("occasions",),
    none="none",
    in_core=PREFETCHES,
)
