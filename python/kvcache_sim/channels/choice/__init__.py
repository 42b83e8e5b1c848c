"""Which channel a transfer goes over: one small class a policy, one row here.

| file | policy |
|---|---|
| `assigned` | `assigned`: the one that the scenario assigns to the edge |
| `emptiest` | `emptiest`: of all that could carry it, the one with the shortest queue |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvcache_sim.channels.choice.policy import ChannelChoice
from kvcache_sim.policies.plugins.choice import Kind
from kvcache_sim.rows import Rows

CHOICES: Rows[Callable[[], ChannelChoice]] = Rows(
    "kvcache_sim.channels.choice",
    {"assigned": "assigned:AssignedChannel", "emptiest": "emptiest:EmptiestChannel"},
)


def _one_of_them(given: Any, asked: tuple[Any, ...], made: tuple[Any, ...]) -> str:
    if isinstance(given, str) and given in asked[1]:
        return given
    raise ValueError("the name of one of the channels")


CHANNEL_CHOICE = Kind("channel choice", "kvsim.channel", CHOICES, {"choose": _one_of_them})
