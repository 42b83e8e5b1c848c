"""How much of a found run is loaded and how much recomputed: one small file a policy, one row here.

| file | policy |
|---|---|
| `always` | `always`, and `wait`: all of it; `wait` lets prefetching finish before the admission |
| `never` | nothing below the gpu |
| `cheaper` | all or nothing, whichever should end earlier |
| `split` | from the front as far as that should end earliest |
| `best_effort` | what is ready on gpu or cpu at the admission; `timeout` waits a while before |
"""

from __future__ import annotations

from kvcache_sim.cache.fetch.always import FetchAlways
from kvcache_sim.cache.fetch.best_effort import FetchBestEffort
from kvcache_sim.cache.fetch.cheaper import FetchCheaper
from kvcache_sim.cache.fetch.never import FetchNever
from kvcache_sim.cache.fetch.policy import FetchPolicy
from kvcache_sim.cache.fetch.split import FetchSplit
from kvcache_sim.policies.plugins.choice import Kind, whole_number

FETCHES: dict[str, type[FetchPolicy]] = {
    "always": FetchAlways,
    "never": FetchNever,
    "cheaper": FetchCheaper,
    "split": FetchSplit,
    "best-effort": FetchBestEffort,
    "wait": FetchAlways,
    "timeout": FetchBestEffort,
}

FETCH = Kind(
    "fetch policy",
    "kvsim.fetch",
    FETCHES,
    {"reuse": lambda given, asked, made: whole_number(given, asked[0].ready, asked[0].end)},
)
