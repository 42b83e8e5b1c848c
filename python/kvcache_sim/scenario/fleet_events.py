"""Events of a fleet in order of time: the plan of a scenario, random faults, slow channels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from msgspec import Struct, field

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng.root import stream
from kvcache_sim.base.units import LAST_NS
from kvcache_sim.base.values import Value
from kvcache_sim.channels.settings import ChannelSettings, NetworkSettings, Slowdown
from kvcache_sim.scenario.channels import Wiring
from kvcache_sim.scenario.cluster_sections import FaultSection, FleetChange, FleetEventSection, FleetSection
from kvcache_sim.scenario.schema import ClusterSection, ScenarioModel
from kvcache_sim.scenario.section import converted
from kvcache_sim.scenario.yaml_tree import Path, Tree

#: Most faults of one run, over all kinds.
_MOST = 20_000


class Fault(Value):
    """One fault: its kind, start, machine slot (of the initial machines) and end.

    ``slot`` is not a machine index: a machine that replaces a lost one takes the same slot.
    """

    at_ns: int
    kind: FaultSection
    slot: int
    #: End of the fault; None: permanent.
    until_ns: int | None


def drawn_faults(fleet: FleetSection, machines: int, seed: int) -> list[Fault]:
    """Return the faults until ``faults_until`` in order of time, ties by kind and slot.

    Raises UsageError for more than 20,000 faults. Cost: one draw per fault.
    """
    found: list[Fault] = []
    for number, kind in enumerate(fleet.faults):
        slots = 1 if kind.do == "lose-index" else machines
        for slot in range(slots):
            for fault in _of(kind, number, slot, fleet.faults_until or 0, seed):
                found.append(fault)
                if len(found) > _MOST:
                    raise UsageError("too many faults", "fleet.faults", expected=f"at most {_MOST:,} of them")
    return sorted(found, key=lambda fault: fault.at_ns)


def _of(kind: FaultSection, number: int, slot: int, until_ns: int, seed: int) -> Iterator[Fault]:
    draws = stream(seed, f"fleet.faults.{number}.{kind.do}.{slot}")
    now = 0
    while True:
        now += max(1, round(draws.exponential(kind.mtbf)))
        if now >= until_ns:
            return
        ends = None if kind.repair is None else now + kind.repair
        yield Fault(now, kind, slot, ends)
        if ends is None and kind.do in ("lose", "slow"):
            return
        now = ends or now


class FleetEvent(Value):
    """One event of a machine (None: of a shared part), a tier or a channel."""

    at_ns: int
    do: FleetChange
    machine: int | None = None
    tier: str = ""
    channel: str = ""
    share: float = 0.0
    #: End of a slow channel; None: the end of the run.
    until_ns: int | None = None
    #: Path of the event in the plan; empty for a random fault.
    path: Path = ()


class _Machines(Struct):
    """The serving machines, all existing machines (a drained machine can still be lost), and their slots."""

    number: int
    serving: set[int]
    there: set[int]
    machine_of_slot: dict[int, int] = field(default_factory=dict)
    #: Machines lost by a random fault: planned events of these machines are skipped.
    failed: set[int] = field(default_factory=set)

    def join(self, slot: int | None = None) -> int:
        machine, self.number = self.number, self.number + 1
        self.serving.add(machine)
        self.there.add(machine)
        if slot is not None:
            self.machine_of_slot[slot] = machine
        return machine

    def leave(self, machine: int, lost: bool) -> None:
        self.serving.discard(machine)
        if lost:
            self.there.remove(machine)


def fleet_events(model: ScenarioModel, tree: Tree) -> list[FleetEvent]:
    """Return the events of a plan and of its faults in order of time; a joining machine gets the next index.

    Raises UsageError for an event of a machine that does not exist at its time.
    """
    fleet, count = model.fleet, model.cluster.machines
    if not fleet.plan and not fleet.faults:
        return []
    machines = _Machines(count, set(range(count)), set(range(count)), {m: m for m in range(count)})
    events: list[FleetEvent] = []
    for at_ns, what in sorted(_moments(model), key=lambda moment: moment[0]):
        if isinstance(what, int):
            event, path = fleet.plan[what], ("fleet", "plan", what)
            if event.machine not in machines.failed:
                events.append(_planned(event, path, at_ns, machines, tree))
        else:
            events += _drawn(what, at_ns, machines)
    return events


def _moments(model: ScenarioModel) -> Iterator[tuple[int, int | Fault]]:
    """Yield the time of each planned event (with its index), and of each fault and replacement."""
    fleet = model.fleet
    for slot, event in enumerate(fleet.plan):
        yield event.at + (fleet.startup if event.do == "join" else 0), slot
    for fault in drawn_faults(fleet, model.cluster.machines, model.seed):
        yield fault.at_ns, fault
        if fault.kind.do == "lose" and fault.until_ns is not None:
            yield fault.until_ns + fleet.startup, fault


def _planned(event: FleetEventSection, path: Path, at_ns: int, machines: _Machines, tree: Tree) -> FleetEvent:
    machine = event.machine
    if event.do == "join":
        if machine is not None:
            hint = "a joining machine gets the next number"
            raise UsageError("a join names a machine", tree.location(path), str(machine), hint=hint)
        machine = machines.join()
    elif event.do in ("drain", "lose", "lose-tier") or (event.do == "flush" and machine is not None):
        able = machines.serving if event.do == "drain" else machines.there
        if machine is None or machine not in able:
            expected = f"machine: one that exists at that time, {_listed(able)}"
            raise UsageError(f"no such machine to {event.do}", tree.location(path), str(machine), expected)
        if event.do in ("drain", "lose"):
            machines.leave(machine, event.do == "lose")
    until_ns = None if event.lasts is None else at_ns + event.lasts
    return FleetEvent(
        at_ns, event.do, machine, event.tier or "", event.channel or "", event.share, until_ns, path
    )


def _drawn(fault: Fault, at_ns: int, machines: _Machines) -> Iterator[FleetEvent]:
    """Yield the events of a fault on the machine in its slot; none if the slot is empty."""
    kind, machine = fault.kind, machines.machine_of_slot.get(fault.slot, -1)
    if kind.do == "lose-index":
        yield FleetEvent(at_ns, kind.do)
    elif kind.do == "lose" and at_ns != fault.at_ns:
        if machine == -1:
            yield FleetEvent(at_ns, "join", machines.join(fault.slot))
    elif machine in machines.there:
        if kind.do == "lose":
            machines.leave(machine, lost=True)
            machines.machine_of_slot[fault.slot] = -1
            machines.failed.add(machine)
        yield FleetEvent(
            at_ns, kind.do, machine, kind.tier or "", kind.channel or "", kind.share, fault.until_ns
        )


def _listed(machines: set[int]) -> str:
    listed = sorted(machines)
    return ", ".join(map(str, listed[:6])) + (", …" if len(listed) > 6 else "") if listed else "none"


def event_texts(scenario: Mapping[str, Any], until_ns: int) -> list[tuple[int, str]]:
    """Return time and text of the events of a resolved scenario's fleet up to a time."""
    return [(event.at_ns, event_text(event)) for event in _events_of(scenario, until_ns)]


def faults_until(scenario: Mapping[str, Any], until_ns: int) -> list[FleetEvent]:
    """Return the events up to a time that take something away: machines that join or drain are none."""
    return [event for event in _events_of(scenario, until_ns) if event.do not in ("join", "drain")]


def _events_of(scenario: Mapping[str, Any], until_ns: int) -> list[FleetEvent]:
    sections = {key: scenario[key] for key in ("fleet", "seed") if key in scenario}
    model = ScenarioModel(
        fleet=converted(FleetSection, sections.get("fleet", {})),
        seed=int(sections.get("seed", 0)),
        cluster=converted(ClusterSection, scenario.get("cluster", {})),
    )
    return [event for event in fleet_events(model, Tree()) if event.at_ns <= until_ns]


def event_text(event: FleetEvent) -> str:
    """Return an event in words, without its time."""
    machine = "" if event.machine is None else f" of machine {event.machine}"
    if event.do == "slow":
        until = "" if event.until_ns is None else f" until {event.until_ns / 1e9:g} s"
        return f"{event.channel}{machine} at {event.share:.0%} of its rate{until}"
    if event.do == "lose-tier":
        return f"{event.tier}{machine} lost"
    if event.do == "lose-pool":
        return "the shared pool lost"
    if event.do == "lose-index":
        return "the router's index lost"
    if event.do == "flush":
        return f"caches{machine} emptied"
    return f"machine {event.machine} {_PAST[event.do]}"


_PAST = {"join": "joins", "drain": "drains", "lose": "is lost"}


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
    """Return the channels that an event affects: of its machine, or of all machines."""
    section = wiring.sections.get(event.channel)
    if section is None or section.scope != "machine":
        return frozenset({event.channel})
    machines = range(len(wiring.edge_channels)) if event.machine is None else [event.machine]
    return frozenset({event.channel, *(f"{event.channel}-{machine}" for machine in machines)})


def _between(network: NetworkSettings, slow: Sequence[FleetEvent]) -> NetworkSettings:
    slowdowns = [event for event in slow if event.channel == network.default.name]
    return replace(network, default=_slowed(network.default, slowdowns)) if slowdowns else network


def _slowed(settings: ChannelSettings, slow: Sequence[FleetEvent]) -> ChannelSettings:
    """Return a channel with its slow times in order, without overlap: the lowest share applies."""
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
