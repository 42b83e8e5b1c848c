"""Edges between machines: who reads from whom over which channel.

| edge | means |
|---|---|
| `1:cpu->0:cpu` | what machine 0 reads from machine 1 |
| `0:remote->cpu` | all that machine 0 reads from others |
| `1:cpu->remote` | all that others read from machine 1 |
| `remote->cpu`, `cpu->remote` | the same for every machine |
| `1:gpu->0:gpu`, `0:remote->gpu`, … | the same of requests that machine 1 hands over to machine 0 |

The first row that fits decides. ``scope: machine`` makes one channel a reader (or an owner, for
``cpu->remote``), ``cluster`` one for all, ``pair`` one for each ordered pair.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.errors import UsageError
from kvcache_sim.scenario.schema import ChannelSection
from kvcache_sim.scenario.section import lowered
from kvcache_sim.scenario.yaml_tree import Tree
from kvcache_sim.tiers import COMPUTE, STAGING, TIERS

#: Tiers that exchange KV with another machine's.
_ENDS = f"({TIERS[STAGING]}|{TIERS[COMPUTE]})"
_PAIR = rf"\s*(\d{{1,4}})\s*:\s*{_ENDS}\s*->\s*(\d{{1,4}})\s*:\s*\2\s*"
_SIDE = rf"\s*(?:(\d{{1,4}})\s*:)?\s*(?:remote\s*->\s*{_ENDS}|{_ENDS}\s*->\s*remote)\s*"

#: (owner, reader), None for any.
_Claim = tuple[int | None, int | None, str]


class NetworkClaims:
    """The edges between machines that channels claim, and who gets each ordered pair.

    ``pairs``: the (owner, reader) there are; of a hand-over the owner is who computed.
    """

    def __init__(self, pairs: Sequence[tuple[int, int]]) -> None:
        self.pairs = pairs
        self._claims: dict[_Claim, str] = {}

    @staticmethod
    def tier_of(edge: str) -> str | None:
        """Return between which tiers an edge between machines leads: ``cpu`` reads, ``gpu`` hands over."""
        pair, side = re.fullmatch(_PAIR, edge), re.fullmatch(_SIDE, edge)
        if pair:
            return pair[2]
        return (side[2] or side[3]) if side else None

    def claim(self, name: str, edge: str, where: str) -> None:
        """Note that a channel carries an edge. Raises UsageError where another has it or no machine does."""
        pair, side = re.fullmatch(_PAIR, edge), re.fullmatch(_SIDE, edge)
        if pair:
            key: _Claim = (int(pair[1]), int(pair[3]), "pair")
        else:
            assert side is not None
            machine = None if side[1] is None else int(side[1])
            key = (None, machine, "in") if side[2] else (machine, None, "out")
        owner, reader, _ = key
        if not any(owner in (None, o) and reader in (None, r) for o, r in self.pairs):
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
            raise UsageError("edges from and to remote both carry everything", tree.place(("channels", name)))
        pairs: dict[tuple[int, int], str] = {}
        rest: str | None = None
        for owner, reader in self.pairs:
            name, side = self._carrier(owner, reader)
            scope = sections[name].scope
            if scope == "pair" and side != "pair":
                if side not in ("in-rest", "out-rest"):
                    raise UsageError("scope pair is for all machines", tree.place(("channels", name)))
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
    return lowered(ChannelSettings, section, name=name, bandwidth_bytes_per_s=section.bandwidth, slowdowns=())
