"""The part of a found run that is loaded; the rest is recomputed: a policy of the core or a plug-in.

| policy | loads |
|---|---|
| `always`, `wait` | all of it; `wait` lets prefetching finish before the admission |
| `never` | nothing below the GPU |
| `cheaper` | all or nothing, by the earlier expected end |
| `split` | the leading part with the earliest expected end |
| `best-effort`, `timeout` | blocks ready on GPU or CPU at the admission; `timeout` waits for them first |

The rules are in ``rust/core/src/machine/fetch.rs``, and in ``spec/movement_policies.py`` to read.
"""

from __future__ import annotations

from kvcache_sim.policies.plugins.choice import Kind, whole_number

FETCHES = ("always", "never", "cheaper", "split", "best-effort", "wait", "timeout")

FETCH = Kind(
    "fetch policy",
    "kvsim.fetch",
    {},
    {"reuse": lambda given, asked, made: whole_number(given, asked[0].ready, asked[0].end)},
    in_core=FETCHES,
)
