"""Edges between machines: who reads from whom over which channel.

| edge | means |
|---|---|
| `1:cpu->0:cpu` | what machine 0 reads from machine 1 |
| `0:remote->cpu` | all that machine 0 reads from others |
| `1:cpu->remote` | all that others read from machine 1 |
| `remote->cpu`, `cpu->remote` | the same for every machine |

The first row that fits decides. ``scope: machine`` makes one channel a reader (or an owner, for
``cpu->remote``), ``cluster`` one for all, ``pair`` one for each ordered pair.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kvcache_sim.cache.settings import ChannelSettings
from kvcache_sim.errors import UsageError
from kvcache_sim.scenario.schema import ChannelSection
from kvcache_sim.scenario.yaml_tree import Tree

_PAIR = re.compile(r"\s*(\d{1,4})\s*:\s*cpu\s*->\s*(\d{1,4})\s*:\s*cpu\s*")
_SIDE = re.compile(r"\s*(?:(\d{1,4})\s*:)?\s*(remote\s*->\s*cpu|cpu\s*->\s*remote)\s*")

#: (owner, reader), None for any.
_Claim = tuple[int | None, int | None, str]


class NetworkClaims:
    """The edges between machines that channels claim, and who gets each ordered pair."""

    def __init__(self, machines: int) -> None:
        self.machines = machines
        self._claims: dict[_Claim, str] = {}

    @staticmethod
    def is_network(edge: str) -> bool:
        """Return whether an edge is one between machines."""
        return bool(_PAIR.fullmatch(edge) or _SIDE.fullmatch(edge))

    def claim(self, name: str, edge: str, where: str) -> None:
        """Note that a channel carries an edge. Raises UsageError where another has it or no machine does."""
        pair, side = _PAIR.fullmatch(edge), _SIDE.fullmatch(edge)
        if pair:
            key: _Claim = (int(pair[1]), int(pair[2]), "pair")
            bad = pair[1] == pair[2]
        else:
            assert side is not None
            machine = None if side[1] is None else int(side[1])
            inward = side[2].startswith("remote")
            key = (None, machine, "in") if inward else (machine, None, "out")
            bad = False
        if bad or any(m is not None and m >= self.machines for m in key[:2]):
            raise UsageError(f"channel {name!r} has no effect", where, repr(edge), hint="no such machines")
        if self._claims.setdefault(key, name) != name:
            raise UsageError(
                f"edge {edge!r} is on two channels", where, f"{self._claims[key]!r} and {name!r}"
            )

    def claim_rest(self, name: str) -> None:
        """Let a channel carry what no other does."""
        if (None, None, "out") not in self._claims:
            self._claims.setdefault((None, None, "in"), name)

    def settle(
        self,
        sections: Mapping[str, ChannelSection],
        owner_of: dict[str, str],
        channels: dict[str, ChannelSettings],
        tree: Tree,
    ) -> tuple[dict[tuple[int, int], str], str | None]:
        """Return the channel of each pair that shares one, and the name of the one made anew for the others.

        Adds the shared ones to ``channels`` and ``owner_of``.
        """
        if (None, None, "in") in self._claims and (None, None, "out") in self._claims:
            name = self._claims[None, None, "out"]
            raise UsageError(
                "remote->cpu and cpu->remote both carry every read", tree.place(("channels", name))
            )
        pairs: dict[tuple[int, int], str] = {}
        rest: str | None = None
        for owner in range(self.machines):
            for reader in range(self.machines):
                if owner == reader:
                    continue
                name, side = self._carrier(owner, reader)
                scope = sections[name].scope
                if scope == "pair" and side != "pair":
                    if side not in ("in-rest", "out-rest"):
                        raise UsageError("scope pair is for all reads", tree.place(("channels", name)))
                    rest = name
                    continue
                instance = name
                if scope == "machine" and side != "pair":
                    instance = f"{name}-{owner if side.startswith('out') else reader}"
                owner_of.setdefault(instance, name)
                channels[instance] = settings_of(instance, sections[name])
                pairs[owner, reader] = instance
        return pairs, rest

    def _carrier(self, owner: int, reader: int) -> tuple[str, str]:
        keys: list[tuple[_Claim, str]] = [
            ((owner, reader, "pair"), "pair"),
            ((None, reader, "in"), "in"),
            ((owner, None, "out"), "out"),
            ((None, None, "in"), "in-rest"),
            ((None, None, "out"), "out-rest"),
        ]
        return next((self._claims[key], side) for key, side in keys if key in self._claims)


def settings_of(name: str, section: ChannelSection) -> ChannelSettings:
    """Return the settings of the channel that a section describes, under its own name."""
    return ChannelSettings(
        name=name,
        bandwidth_bytes_per_s=section.bandwidth,
        latency_ns=section.latency,
        piece_overhead_ns=section.piece_overhead,
        sharing=section.sharing,
        priority=section.priority,
        latency_occupies=section.latency_occupies,
    )
