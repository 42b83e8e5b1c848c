"""Workloads made from a seed: one file a kind (seed 000, section 4).

``build("conversational", {"requests": 500, "think_time": "2s"}, seed=1)`` returns a trace, and
``settings_of`` only checks the mapping; ``write_jsonl`` streams any number of rows to a file.
"""

from __future__ import annotations

from kvcache_sim.workload.generate.build import build, settings_of
from kvcache_sim.workload.generate.jsonl import write_jsonl
from kvcache_sim.workload.generate.kinds import KINDS

__all__ = ["KINDS", "build", "settings_of", "write_jsonl"]
