"""Blocks brought up before their request is admitted: a policy of the core or a plug-in.

``queued`` brings up a request's own blocks while it waits, ``session`` a paused session's a while before its
next turn. Both are in ``rust/core/src/machine/prefetch.rs``.
"""

from __future__ import annotations

from kvcache_sim.policies.plugins.choice import Kind, whole_number

#: Each acts on the occasion of its name.
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
