"""Channels that are slow or carry nothing for a time, by a fleet's plan and faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from kvcache_sim.channels.settings import ChannelSettings, NetworkSettings, Slowdown
from kvcache_sim.scenario.channels import Wiring
from kvcache_sim.scenario.fleet_events import FleetEvent
from kvcache_sim.units import LAST_NS


def with_slow_channels(wiring: Wiring, events: Sequence[FleetEvent]) -> Wiring:
    """Return the wiring with the times at which its channels are slow."""
    slow = [event for event in events if event.do == "slow"]
    if not slow:
        return wiring
    channels = {}
    for name, settings in wiring.channels.items():
        channels[name] = _slowed(settings, [event for event in slow if name in _instances(event, wiring)])
    return replace(
        wiring,
        channels=channels,
        network=_between(wiring.network, slow),
        handovers=_between(wiring.handovers, slow),
    )


def _instances(event: FleetEvent, wiring: Wiring) -> frozenset[str]:
    """Return the channels that an event is about: of its machine, or of all."""
    section = wiring.sections.get(event.channel)
    if section is None or section.scope != "machine":
        return frozenset({event.channel})
    machines = range(len(wiring.edge_channels)) if event.machine is None else [event.machine]
    return frozenset({event.channel, *(f"{event.channel}-{machine}" for machine in machines)})


def _between(network: NetworkSettings, slow: Sequence[FleetEvent]) -> NetworkSettings:
    own = [event for event in slow if event.channel == network.default.name]
    return replace(network, default=_slowed(network.default, own)) if own else network


def _slowed(settings: ChannelSettings, slow: Sequence[FleetEvent]) -> ChannelSettings:
    """Return a channel with the times in order, without overlap: of several the least share holds."""
    if not slow:
        return settings
    ends = [LAST_NS if event.until_ns is None else event.until_ns for event in slow]
    times = sorted({*(event.at_ns for event in slow), *ends})
    spans = []
    for start, end in pairwise(times):
        shares = [e.share for e, until in zip(slow, ends, strict=True) if e.at_ns <= start and end <= until]
        if shares:
            spans.append(Slowdown(start, end, round(min(shares) * 1_000_000)))
    return replace(settings, slowdowns=tuple(spans))
