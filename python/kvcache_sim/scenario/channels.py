"""Channels of each edge of each machine, with defaults for edges that the scenario does not assign.

Edges between machines:

| edge | means |
|---|---|
| `1:cpu->0:cpu` | reads of machine 0 from machine 1 |
| `0:remote->cpu` | all reads of machine 0 from other machines |
| `1:cpu->remote` | all reads of other machines from machine 1 |
| `remote->cpu`, `cpu->remote` | the same for every machine |
| `1:gpu->0:gpu`, `0:remote->gpu`, … | the same for requests that machine 1 hands over to machine 0 |

The first matching row applies. ``scope: machine`` creates one channel per reader (per owner for
``cpu->remote``), ``cluster`` a single channel, ``pair`` one per ordered pair of machines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.tier_table import ROWS
from kvcache_sim.base.tiers import (
    COMPUTE,
    EDGES,
    HAND_OVER,
    LOAD_EDGES,
    READ_OF_ONE,
    REMOTE_READ,
    STAGING,
    TIERS,
    WRITE_EDGES,
)
from kvcache_sim.base.values import Value
from kvcache_sim.channels.settings import ChannelSettings, NetworkSettings
from kvcache_sim.model.channels import load_channel
from kvcache_sim.model.step_times import measured_on
from kvcache_sim.scenario.idle import IdleError
from kvcache_sim.scenario.kv_copies import connector_channels
from kvcache_sim.scenario.schema import ChannelSection, MachineSection, ScenarioModel
from kvcache_sim.scenario.section import lowered
from kvcache_sim.scenario.served_model import copies_of
from kvcache_sim.scenario.yaml_tree import Tree, at_location, setting_file

#: Tiers that exchange KV with the same tier of another machine.
_ENDS = f"({TIERS[STAGING]}|{TIERS[COMPUTE]})"
_PAIR = rf"\s*(\d{{1,4}})\s*:\s*{_ENDS}\s*->\s*(\d{{1,4}})\s*:\s*\2\s*"
_SIDE = rf"\s*(?:(\d{{1,4}})\s*:)?\s*(?:remote\s*->\s*{_ENDS}|{_ENDS}\s*->\s*remote)\s*"

#: (owner, reader); None matches any machine.
_Claim = tuple[int | None, int | None, str]


class NetworkClaims:
    """The edges between machines that channels claim, and the channel assigned to each ordered pair.

    ``pairs``: the existing (owner, reader) pairs; the owner of a hand-over is the machine that computed the
    KV.
    """

    def __init__(self, pairs: Sequence[tuple[int, int]]) -> None:
        self.pairs = pairs
        self._claims: dict[_Claim, str] = {}

    @staticmethod
    def tier_of(edge: str) -> str | None:
        """Return the tier that an edge between machines joins: ``cpu`` (reads) or ``gpu`` (hand-overs)."""
        pair, side = re.fullmatch(_PAIR, edge), re.fullmatch(_SIDE, edge)
        if pair:
            return pair[2]
        return (side[2] or side[3]) if side else None

    def claim(self, name: str, edge: str, where: str) -> None:
        """Assign an edge to a channel. Raises UsageError if another channel has it or no machine does."""
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
        """Assign all unclaimed edges to a channel."""
        if (None, None, "out") not in self._claims:
            self._claims.setdefault((None, None, "in"), name)

    def settle(
        self,
        sections: Mapping[str, ChannelSection],
        owner_of: dict[str, str],
        channels: dict[str, ChannelSettings],
        tree: Tree,
    ) -> tuple[dict[tuple[int, int], str], str | None]:
        """Return the channel of each pair with a shared channel, and the name of the new channel of the rest.

        Adds the shared channels to ``channels`` and ``owner_of``.
        """
        if (None, None, "in") in self._claims and (None, None, "out") in self._claims:
            name = self._claims[None, None, "out"]
            raise UsageError(
                "edges from and to remote both carry everything", tree.location(("channels", name))
            )
        pairs: dict[tuple[int, int], str] = {}
        rest: str | None = None
        for owner, reader in self.pairs:
            name, side = self._carrier(owner, reader)
            scope = sections[name].scope
            if scope == "pair" and side != "pair":
                if side not in ("in-rest", "out-rest"):
                    raise UsageError("scope pair is for all machines", tree.location(("channels", name)))
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


#: Channels of a machine unless the scenario assigns others: one per edge and direction.
DEFAULT_CHANNELS: dict[str, dict[str, Any]] = {
    **{
        edge.replace("->", "-to-"): {"preset": row.link, "edges": [edge]}
        for level, row in enumerate(ROWS[STAGING:])
        for edge in (WRITE_EDGES[level], LOAD_EDGES[level])
    },
    "net": {"preset": "rdma-8x400-transfer-engine", "edges": [REMOTE_READ], "scope": "pair"},
    "handover": {"preset": "rdma-8x400-transfer-engine", "edges": [HAND_OVER], "scope": "pair"},
}
#: The default channels between machines, by the tier they lead to.
_BETWEEN = {TIERS[STAGING]: "net", TIERS[COMPUTE]: "handover"}
_UNUSED = {
    TIERS[STAGING]: "no machine reads from another: fetch.lookup is local",
    TIERS[COMPUTE]: "no machine hands over to another: no pools",
}

_EDGE = r"\s*(?:(\d{1,4})\s*:)?\s*(\w+)\s*->\s*(\w+)\s*"


class Wiring(Value):
    """Every channel of the cluster by name, and for each machine the channel of each of its edges."""

    channels: dict[str, ChannelSettings]
    edge_channels: tuple[dict[str, str], ...]
    #: For each machine, the channels of edges that have several.
    edge_rails: tuple[dict[str, tuple[str, ...]], ...]
    network: NetworkSettings
    handovers: NetworkSettings
    #: The sections in use, as a resolved scenario writes them.
    sections: dict[str, ChannelSection]


def with_presets(raw: object, tree: Tree, directory: Path) -> object:
    """Return the ``channels`` of a scenario with presets and defaults filled in below its own values.

    A preset's file is resolved against ``directory``. Raises UsageError for an unknown preset.
    """
    if not isinstance(raw, Mapping):
        return raw
    result = {}
    for name, given in raw.items():
        if not isinstance(given, dict):
            result[name] = given
            continue
        section = {**DEFAULT_CHANNELS.get(name, {}), **given}
        preset = section.pop("preset", None)
        if preset is not None:
            key, named = ("channels", name, "preset"), str(preset)
            own_file = setting_file(tree, key, directory, named) if named.endswith(".toml") else named
            figures = at_location(tree, key, partial(_figures, own_file))
            section = {
                **{key: f"{figure}{_UNITS.get(key, 'ns')}" for key, figure in figures.items()},
                **section,
            }
        result[name] = section
    return result


#: The unit of a figure that is not a time.
_UNITS = {"bandwidth": "B/s"}


def _figures(preset: str) -> dict[str, int]:
    spec = load_channel(preset)
    return {
        "bandwidth": spec.bandwidth_bytes_per_s,
        "latency": spec.latency_ns,
        "piece_overhead": spec.piece_overhead_ns,
        "piece_gap": spec.piece_gap_ns,
        "piece_submit": spec.piece_submit_ns,
    }


def _hands_over(machines: Sequence[MachineSection]) -> list[tuple[int, int]]:
    """Return the ordered pairs (source, target) of machines between which requests are handed over."""
    sources = [m for m, machine in enumerate(machines) if machine.role == "prefill"]
    targets = [m for m, machine in enumerate(machines) if machine.role != "prefill"]
    return [(source, target) for source in sources for target in targets]


def networks_of(model: ScenarioModel, machines: tuple[MachineSection, ...]) -> dict[str, NetworkClaims]:
    """Return the traffic between machines by tier: reads of other machines' KV, and hand-overs."""
    readers = range(len(machines)) if model.fetch.lookup == "cluster" else ()
    reads = [(owner, reader) for owner in readers for reader in readers if owner != reader]
    pairs = {TIERS[STAGING]: reads, TIERS[COMPUTE]: _hands_over(machines)}
    return {tier: NetworkClaims(some) for tier, some in pairs.items() if some}


def default_channel(name: str, model: ScenarioModel, machines: tuple[MachineSection, ...]) -> ChannelSection:
    """Return the default channel of a name in DEFAULT_CHANNELS, by the engine of the tier below the GPU.

    Rates of connectors were measured on one GPU's link: each GPU of a machine has its own, and moves its
    share of what is not stored once.
    """
    section: dict[str, Any] = {**DEFAULT_CHANNELS[name]}
    usual = section.pop("preset")
    replica, lower = machines[0].replica, machines[0].tiers.lower.get(TIERS[STAGING])
    gpu = measured_on(replica.step_time).gpu
    measured = connector_channels(lower.semantics if lower else None, gpu, replica.release or "").get(name)
    figures: dict[str, Any] = {**_figures(measured or usual)}
    if measured:
        copies = copies_of(model, replica)
        figures["bandwidth"] *= 1 if TIERS[STAGING] in copies.once else copies.ranks * (replica.pp or 1)
    return ChannelSection(**section, **figures)


def wire(model: ScenarioModel, machines: tuple[MachineSection, ...], tree: Tree) -> Wiring:
    """Return the channels of a cluster.

    An edge of one machine (``0:cpu->gpu``) takes precedence over the same edge of all machines. Edges without
    a channel get the default channel. Raises UsageError for an unknown edge, an edge on two channels without
    ``channel_choice``, an edge that no machine has, and a channel without an edge.
    """
    sections, networks = model.channels, networks_of(model, machines)
    claims = _claims(sections, machines, networks, tree)
    _refuse_unchosen(claims, model.channel_choice, tree)
    every = dict(sections)
    there = {edge for machine in machines for edge in _edges(machine)}
    for name, default in DEFAULT_CHANNELS.items():
        tier = next((tier for tier, between in _BETWEEN.items() if between == name), None)
        if name in every or (there.isdisjoint(default["edges"]) if tier is None else tier not in networks):
            continue
        every[name] = default_channel(name, model, machines)
        if tier is not None:
            networks[tier].claim_rest(name)
            continue
        for edge in default["edges"]:
            claims.setdefault((None, edge), [name])
    channels: dict[str, ChannelSettings] = {}
    edge_rails: list[dict[str, tuple[str, ...]]] = []
    owner: dict[str, str] = {}
    for index, machine in enumerate(machines):
        edges: dict[str, tuple[str, ...]] = {}
        for edge in _edges(machine):
            names = claims[(index, edge)] if (index, edge) in claims else claims[(None, edge)]
            instances = [name if every[name].scope == "cluster" else f"{name}-{index}" for name in names]
            for name, instance in zip(names, instances, strict=True):
                if owner.setdefault(instance, name) != name:
                    raise UsageError(
                        f"channels {name!r} and {owner[instance]!r} are both called {instance!r} here",
                        where=tree.location(("channels", name)),
                    )
                channels[instance] = settings_of(instance, every[name])
            edges[edge] = tuple(instances)
        edge_rails.append(edges)
    wires = {tier: NetworkSettings() for tier in _BETWEEN}
    used = {owner[instance] for edges in edge_rails for rails in edges.values() for instance in rails}
    for tier, claimed in networks.items():
        pairs, rest = claimed.settle(every, owner, channels, tree)
        used |= {owner[instance] for instance in pairs.values()} | ({rest} if rest else set())
        wires[tier] = (
            NetworkSettings(pairs, settings_of(rest, every[rest])) if rest else NetworkSettings(pairs)
        )
    for name in sections:
        if name not in used:
            raise IdleError(
                f"channel {name!r} has no effect",
                where=tree.location(("channels", name)),
                hint="other channels carry all its edges",
                path=("channels", name),
            )
    sections = {name: every[name] for name in every if name in used}
    first = tuple({edge: rails[0] for edge, rails in edges.items()} for edges in edge_rails)
    several = tuple({edge: rails for edge, rails in edges.items() if len(rails) > 1} for edges in edge_rails)
    return Wiring(channels, first, several, wires[TIERS[STAGING]], wires[TIERS[COMPUTE]], sections)


def _claims(
    sections: Mapping[str, ChannelSection],
    machines: tuple[MachineSection, ...],
    networks: Mapping[str, NetworkClaims],
    tree: Tree,
) -> dict[tuple[int | None, str], list[str]]:
    """Return (machine or None for all, edge) → channels; edges between machines are added to ``networks``."""
    claims: dict[tuple[int | None, str], list[str]] = {}
    for name, section in sections.items():
        if not section.edges:
            raise UsageError(
                f"channel {name!r} carries nothing", where=tree.location(("channels", name, "edges"))
            )
        for position, text in enumerate(section.edges):
            path = ("channels", name, "edges", position)
            where = tree.location(path)
            tier = NetworkClaims.tier_of(text)
            if tier is not None:
                if tier not in networks:
                    what = f"channel {name!r} has no effect"
                    raise IdleError(what, where, repr(text), hint=_UNUSED[tier], path=path)
                networks[tier].claim(name, text, where)
                continue
            match = re.fullmatch(_EDGE, text)
            edge = f"{match[2]}->{match[3]}" if match else ""
            if match is None or edge not in EDGES:
                raise UsageError(
                    "no such edge",
                    where=where,
                    got=repr(text),
                    expected=f"one of {', '.join((*EDGES, REMOTE_READ, HAND_OVER))}",
                    hint=f"{READ_OF_ONE} is what machine 0 reads from machine 1; "
                    "'kvsim help channels' has all",
                )
            machine = None if match[1] is None else int(match[1])
            candidates = machines if machine is None else machines[machine : machine + 1]
            if not any(edge in _edges(candidate) for candidate in candidates):
                what = f"channel {name!r} has no effect"
                raise IdleError(what, where, repr(text), hint="no machine has this edge", path=path)
            if section.scope == "pair":
                raise UsageError("scope pair is for reads between machines", where=where, got=repr(text))
            rails = claims.setdefault((machine, edge), [])
            if name not in rails:
                rails.append(name)
    return claims


def _refuse_unchosen(claims: Mapping[tuple[int | None, str], list[str]], choice: str, tree: Tree) -> None:
    """Raise UsageError for an edge on two channels without a choice, or a choice without such an edge."""
    several = [(edge, rails) for (_, edge), rails in claims.items() if len(rails) > 1]
    if several and choice == "assigned":
        edge, (first, second, *_) = several[0]
        raise UsageError(
            f"edge {edge!r} is on two channels",
            where=tree.location(("channels", second)),
            got=f"{first!r} and {second!r}",
            hint="channel_choice can choose",
        )
    if choice != "assigned" and not several:
        raise IdleError(
            "channel_choice has no effect",
            tree.location(("channel_choice",)),
            hint="no edge is on two channels",
            path=("channel_choice",),
        )


def _edges(machine: MachineSection) -> list[str]:
    """Return the edges of a machine, in the order of EDGES."""
    return list(EDGES[: 2 * (len(machine.tiers.present) - 1)])
