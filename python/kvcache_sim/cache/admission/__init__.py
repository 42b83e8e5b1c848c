"""The part of a finished request that the cache keeps for others: a policy of the core or a plug-in.

``all`` keeps all blocks of the request, ``prompt`` those of its prompt and no generated ones. Both are
in ``rust/core/src/machine/scheduler.rs``.
"""

from __future__ import annotations

from kvcache_sim.policies.plugins.choice import Kind, whole_number

ADMISSIONS = ("all", "prompt")

ADMISSION = Kind(
    "admission policy",
    "kvsim.admission",
    {},
    {"kept_blocks": lambda given, asked, made: whole_number(given, 0, asked[0].blocks)},
    in_core=ADMISSIONS,
)
