"""When KV is copied one tier down: one small file a policy, one row here.

| file | policy |
|---|---|
| `back` | at eviction, where there is no copy below |
| `through` | as soon as it is there; `through-sync` delays the batch by it |
| `selective` | at the n-th use; what was never written is discarded at eviction |
| `edges` | the write policies of a machine's edges, and the store whose blocks they copy down |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvcache_sim.cache.settings import MovementSettings
from kvcache_sim.cache.store import NO_MOVE
from kvcache_sim.cache.write.policy import WritePolicy
from kvcache_sim.policies.plugins.choice import Kind, whole_number
from kvcache_sim.rows import Rows

#: Name → constructor, which takes the upper tier of the edge and the settings.
WRITES: Rows[Callable[[int, MovementSettings], WritePolicy]] = Rows(
    "kvcache_sim.cache.write",
    {
        "back": "back:WriteBack",
        "through": "through:WriteThrough",
        "through-sync": "through:WriteThroughSync",
        "selective": "selective:WriteSelective",
    },
)


def _sent(given: Any, asked: tuple[Any, ...], made: tuple[Any, ...]) -> int | None:
    # a move's number has its slot's generation in the upper half of 64 bits
    if given is None:
        return None
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
    WRITES,
    {"committed": _sent, "used": _sent, "arrived": _sent},
    ("writes_back", "at_commit", "delays_step"),
)
