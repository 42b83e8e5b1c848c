"""Workloads made from a seed (seed 000, section 4).

``build("conversational", {"requests": 500, "think_time": "2s"}, seed=1)`` returns a trace, and
``settings_of`` only checks the mapping; ``write_jsonl`` streams any number of rows to a file.

- ``arrivals``    arrival processes: when units of a workload (sessions, or single requests) start
- ``build``       from a kind's name and a mapping to its settings, and to its trace
- ``chains``      texts as chained blocks
- ``chunk``       a chunk of a workload: the requests of a fixed number of units, still without times and ids
- ``dialogues``   sessions: conversations, agents, conversations that outgrow their window
- ``jsonl``       rows of a workload as they are written
- ``lengths``     distributions of token counts and times
- ``requests``    chunks with times, sessions and block ids
- ``settings``    what every workload has, and how its fields are read
- ``singles``     single requests: diverse, few-shot, repetitive prompts, retrieval
"""

from __future__ import annotations

from kvcache_sim.workload.generate.build import KINDS, build, settings_of
from kvcache_sim.workload.generate.jsonl import write_jsonl

__all__ = ["KINDS", "build", "settings_of", "write_jsonl"]
