"""What the cache admits: how much of a finished request is kept for others. One small class, one row here.

| file | policy |
|---|---|
| `everything` | `all`: everything it computed |
| `prompt` | `prompt`: its prompt, and none of what it generated |
"""

from __future__ import annotations

from collections.abc import Callable

from kvcache_sim.cache.admission.policy import AdmissionPolicy
from kvcache_sim.policies.plugins.choice import Kind, whole_number
from kvcache_sim.rows import Rows

ADMISSIONS: Rows[Callable[[], AdmissionPolicy]] = Rows(
    "kvcache_sim.cache.admission", {"all": "everything:AdmitEverything", "prompt": "prompt:AdmitPrompt"}
)

ADMISSION = Kind(
    "admission policy",
    "kvsim.admission",
    ADMISSIONS,
    {"kept_blocks": lambda given, asked, made: whole_number(given, 0, asked[0].blocks)},
)
