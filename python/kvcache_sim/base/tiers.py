"""Names and numbers derived from the table of tiers: levels, and the edges between tiers."""

from __future__ import annotations

from itertools import pairwise

from kvcache_sim.base.tier_table import ROWS

#: Names from fast to slow; a tier's level is its index.
TIERS = tuple(row.name for row in ROWS)
#: Tiers that wear out by writing.
WEARING = tuple(row.name for row in ROWS if row.wears)
#: Router credit of a block by level (the defaults of NVIDIA Dynamo's router).
ROUTER_CREDITS = tuple(row.router_credit for row in ROWS)
#: Level of the GPU's memory.
COMPUTE = 0
#: Level of the landing tier of KV from lower tiers and from other machines.
STAGING = 1
#: In place of a level: on another machine.
REMOTE = len(TIERS)
#: Sources of reused KV, by level.
KV_SOURCES = (*TIERS, "remote")

#: Every edge inside a machine, from the fastest tier down: write edges, and load edges.
WRITE_EDGES = tuple(f"{upper}->{lower}" for upper, lower in pairwise(TIERS))
LOAD_EDGES = tuple(f"{lower}->{upper}" for upper, lower in pairwise(TIERS))
#: Both, from the fastest pair of tiers down.
EDGES = tuple(edge for pair in zip(WRITE_EDGES, LOAD_EDGES, strict=True) for edge in pair)
#: Edges from another machine: reads of its lower tiers, and hand-overs.
REMOTE_READ = f"{KV_SOURCES[REMOTE]}->{TIERS[STAGING]}"
HAND_OVER = f"{KV_SOURCES[REMOTE]}->{TIERS[COMPUTE]}"
#: For examples: reads of machine 0 from machine 1 only.
READ_OF_ONE = f"1:{TIERS[STAGING]}->0:{TIERS[STAGING]}"
#: Every load edge, from the last hop of a load to its first.
HOPS = (LOAD_EDGES[0], REMOTE_READ, *LOAD_EDGES[1:])


def load_edge(lower: int) -> str:
    """Return the edge over which the tier above reads the tier at level ``lower``."""
    return LOAD_EDGES[lower - 1]


def hop_name(edge: str) -> str:
    """Return the name of an edge in columns and parts, such as ``cpu_gpu``."""
    return edge.replace("->", "_")
