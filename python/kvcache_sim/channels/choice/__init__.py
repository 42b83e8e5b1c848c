"""The choice of a channel for a transfer: a rule of the core (``CHOICES``) or a plug-in.

``assigned`` takes the channel that the scenario assigns to the edge, ``emptiest`` the channel of the edge
with the shortest queue. Both are in ``rust/core/src/transfers/lane.rs``; ``policy``
has the contract of a plug-in.
"""

from __future__ import annotations

from typing import Any

from kvcache_sim.policies.plugins.choice import Kind

CHOICES = ("assigned", "emptiest")


def _one_of_them(given: Any, asked: tuple[Any, ...], made: tuple[Any, ...]) -> str:
    if isinstance(given, str) and given in asked[1]:
        return given
    raise ValueError("the name of one of the channels")


CHANNEL_CHOICE = Kind("channel choice", "kvsim.channel", {}, {"choose": _one_of_them}, in_core=CHOICES)
