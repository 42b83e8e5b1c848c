"""Names and numbers derived from the table of tiers: levels, places, and the edges between them."""

from __future__ import annotations

from itertools import pairwise

from kvcache_sim.tier_table import ROWS

#: Names from fast to slow; a tier's place among them is its level.
TIERS = tuple(row.name for row in ROWS)
#: Tiers that wear out by writing.
WEARING = tuple(row.name for row in ROWS if row.wears)
#: By level, what a router credits a block found there with (the defaults of NVIDIA Dynamo's router).
ROUTER_CREDITS = tuple(row.router_credit for row in ROWS)
#: Level of the tier that computes.
COMPUTE = 0
#: Level of the tier where KV from further down, or from other machines, lands before it is loaded.
STAGING = 1
#: In place of a level: on another machine.
REMOTE = len(TIERS)
#: Where reused KV may have come from, by level.
KV_SOURCES = (*TIERS, "remote")

#: Every edge inside a machine, from the fastest tier down: over which KV is written, and read.
WRITE_EDGES = tuple(f"{upper}->{lower}" for upper, lower in pairwise(TIERS))
LOAD_EDGES = tuple(f"{lower}->{upper}" for upper, lower in pairwise(TIERS))
#: Both, from the fastest pair of tiers down.
EDGES = tuple(edge for pair in zip(WRITE_EDGES, LOAD_EDGES, strict=True) for edge in pair)
#: Edges from another machine: what is read from its lower tiers, and what is handed over.
REMOTE_READ = f"{KV_SOURCES[REMOTE]}->{TIERS[STAGING]}"
HAND_OVER = f"{KV_SOURCES[REMOTE]}->{TIERS[COMPUTE]}"
#: For examples: what machine 0 reads from machine 1 alone.
READ_OF_ONE = f"1:{TIERS[STAGING]}->0:{TIERS[STAGING]}"
#: Every edge over which KV comes up to be used, from the last hop of its way to the first.
HOPS = (LOAD_EDGES[0], REMOTE_READ, *LOAD_EDGES[1:])


def load_edge(lower: int) -> str:
    """Return the edge over which the tier at level ``lower`` is read by the one above it."""
    return LOAD_EDGES[lower - 1]


def hop_name(edge: str) -> str:
    """Return the name of an edge in columns and parts, such as ``cpu_gpu``."""
    return edge.replace("->", "_")
