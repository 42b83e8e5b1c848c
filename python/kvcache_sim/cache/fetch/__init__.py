"""How much of a found run is loaded and how much recomputed: one small file a policy, one row here.

| file | policy |
|---|---|
| `always` | `always`, and `wait`: all of it; `wait` lets prefetching finish before the admission |
| `never` | nothing below the gpu |
| `cheaper` | all or nothing, whichever should end earlier |
| `split` | from the front as far as that should end earliest |
| `best_effort` | what is ready on gpu or cpu at the admission; `timeout` waits a while before |
| `plan` | a run that could be reused, and estimates of what loading it and computing the rest would cost |
"""

from __future__ import annotations

from kvcache_sim.cache.fetch.policy import FetchPolicy
from kvcache_sim.policies.plugins.choice import Kind, whole_number
from kvcache_sim.rows import Rows

FETCHES: Rows[type[FetchPolicy]] = Rows(
    "kvcache_sim.cache.fetch",
    {
        "always": "always:FetchAlways",
        "never": "never:FetchNever",
        "cheaper": "cheaper:FetchCheaper",
        "split": "split:FetchSplit",
        "best-effort": "best_effort:FetchBestEffort",
        "wait": "always:FetchAlways",
        "timeout": "best_effort:FetchBestEffort",
    },
)

FETCH = Kind(
    "fetch policy",
    "kvsim.fetch",
    FETCHES,
    {"reuse": lambda given, asked, made: whole_number(given, asked[0].ready, asked[0].end)},
)
