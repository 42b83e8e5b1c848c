"""Workloads generated from a seed (seed 000, section 4).

``build("conversational", {"requests": 500, "think_time": "2s"}, seed=1)`` returns a trace, and
``settings_of`` only validates the mapping; ``write_jsonl`` streams any number of rows to a file.

- ``arrivals``    arrival processes: start times of units (sessions, or single requests)
- ``build``       settings and trace from a kind's name and a mapping
- ``chains``      texts as chained blocks
- ``chunk``       a chunk of a workload: the requests of a fixed number of units, without times and ids
- ``dialogues``   sessions: conversations, agents, conversations that exceed their window
- ``jsonl``       rows of a workload in file form
- ``lengths``     distributions of token counts and times
- ``requests``    chunks with times, sessions and block ids
- ``settings``    settings common to all workloads, and parsers of their fields
- ``singles``     single requests: diverse, few-shot, repetitive prompts, retrieval
"""

from __future__ import annotations

from kvcache_sim.workload.generate.build import KINDS, build, settings_of
from kvcache_sim.workload.generate.jsonl import write_jsonl

__all__ = ["KINDS", "build", "settings_of", "write_jsonl"]
