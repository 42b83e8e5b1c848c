"""Copies of KV one tier down: a policy of the core for each edge, or a plug-in.

| policy | writes down |
|---|---|
| `back` | at eviction, if there is no copy below |
| `through` | as soon as a block is ready; `through-sync` delays the batch by the write |
| `selective` | at the n-th use; blocks never written are discarded at eviction |

The rules are in ``rust/core/src/transfers/write.rs``, and in ``spec/movement_policies.py`` to read.
"""

from __future__ import annotations

from typing import Any

from kvcache_sim.cache.store import NO_MOVE
from kvcache_sim.policies.plugins.choice import Kind, whole_number

WRITES = ("back", "through", "through-sync", "selective")


def _sent(given: Any, asked: tuple[Any, ...], made: tuple[Any, ...]) -> int | None:
    # a move's number has its slot's generation in the upper half of 64 bits
    if given is None or (type(given) is int and 0 <= given < NO_MOVE):
        return given
    try:
        move = whole_number(given, 0, 2**64 - 1)
    except ValueError:
        move = NO_MOVE
    if move == NO_MOVE:
        raise ValueError("the move that the store returned, or None")
    return move


WRITE = Kind(
    "write policy",
    "kvsim.write",
    {},
    {"committed": _sent, "used": _sent, "arrived": _sent},
    ("writes_back", "at_commit", "delays_step"),
    in_core=WRITES,
)
