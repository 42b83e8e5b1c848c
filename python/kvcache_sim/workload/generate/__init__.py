"""Workloads made from a seed: one file a kind (seed 000, section 4).

``build("conversational", {"requests": 500, "think_time": "2s"}, seed=1)`` returns a trace, and
``settings_of`` only checks the mapping; ``write_jsonl`` streams any number of rows to a file.

- ``agentic``     agents: tool calls with gaps between turns, and sub-agents that fork the parent's context
- ``arrivals``    arrival processes: when units of a workload (sessions, or single requests) start
- ``assemble``    a generated workload as a trace in memory
- ``chains``      texts as chained blocks
- ``chunk``       a chunk of a workload: the requests of a fixed number of units, still without times and ids
- ``dialogue``    sessions in which every prompt is the whole history plus a new input
- ``diverse``     diverse prompts: every prompt is a text of its own, so nothing can be reused
- ``few_shot``    few-shot prompts: one of a limited set of system prompts or examples, then a query
- ``fields``      fields of a workload's settings
- ``lengths``     distributions of token counts and times
- ``overflow``    conversations that outgrow the context window or the session's KV allowance (seed 000, 4.5)
- ``pooled``      prompts made of a text from a small pool and a text of their own
- ``rag``         retrieval: prompts of a few documents, drawn by Zipf's law, and a question of their own
- ``repetitive``  repetitive tasks: a few long fixed instructions, each before many short texts
- ``settings``    what every workload has
- ``target``      asking a workload for a hit ratio
"""

from __future__ import annotations

from kvcache_sim.workload.generate.build import build, settings_of
from kvcache_sim.workload.generate.jsonl import write_jsonl
from kvcache_sim.workload.generate.kinds import KINDS

__all__ = ["KINDS", "build", "settings_of", "write_jsonl"]
