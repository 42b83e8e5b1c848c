"""A scenario's ``fleet`` section: the plan of machines that come and go, and where it could not be obeyed."""

from __future__ import annotations

from collections.abc import Iterator

from kvcache_sim.errors import UsageError
from kvcache_sim.scenario.schema import FleetSection, MachineSection, ScenarioModel
from kvcache_sim.scenario.yaml_tree import Path, Tree
from kvcache_sim.serving.membership.plan import MembershipEvent, MembershipPlan


def joining_machines(model: ScenarioModel) -> int:
    """Return how many machines join a cluster while it serves."""
    return sum(event.do == "join" for event in model.fleet.plan)


def membership_plan(model: ScenarioModel, tree: Tree) -> MembershipPlan:
    """Return the events of a plan in order of time; those that join get the next numbers, in that order.

    Raises UsageError for an event of a machine that is not there then.
    """
    section: FleetSection = model.fleet
    #: Who is sent requests, and who is there at all: a drained machine may still be lost.
    serving, there = set(range(model.cluster.machines)), set(range(model.cluster.machines))
    number = model.cluster.machines
    events = []
    for place in sorted(range(len(section.plan)), key=lambda place: _when(section, place)):
        own, where = section.plan[place], tree.place(("fleet", "plan", place))
        machine = own.machine
        if own.do == "join":
            if machine is not None:
                hint = "a joining machine gets the next number"
                raise UsageError("a join names a machine", where, str(machine), hint=hint)
            machine, number = number, number + 1
            serving.add(machine)
            there.add(machine)
        else:
            able = there if own.do == "lose" else serving
            if machine is None or machine not in able:
                expected = f"machine: one of those that are there then, {_listed(able)}"
                raise UsageError(f"no such machine to {own.do}", where, str(machine), expected)
            serving.discard(machine)
            if own.do == "lose":
                there.remove(machine)
        events.append(MembershipEvent(_when(section, place), own.do, machine))
    return MembershipPlan(tuple(events), section.in_flight)


def _when(section: FleetSection, place: int) -> int:
    event = section.plan[place]
    return event.at + (section.startup if event.do == "join" else 0)


def _listed(machines: set[int]) -> str:
    told = sorted(machines)
    return ", ".join(map(str, told[:6])) + (", …" if len(told) > 6 else "") if told else "none"


def findings(model: ScenarioModel, machines: tuple[MachineSection, ...]) -> Iterator[tuple[Path, str]]:
    """Yield what of a fleet's section has no effect, or cannot be obeyed beside other settings, and why."""
    fleet = model.fleet
    if not fleet.plan:
        for key in ("startup", "in_flight"):
            if getattr(fleet, key) != FleetSection.model_fields[key].default:
                yield ("fleet", key), "fleet.plan is empty"
        return
    if fleet.startup and not joining_machines(model):
        yield ("fleet", "startup"), "no machine joins"
    if fleet.in_flight != "retry" and all(event.do != "lose" for event in fleet.plan):
        yield ("fleet", "in_flight"), "no machine is lost"
    shared = [name for name, own in model.channels.items() if own.scope != "machine" or _by_event(own)]
    reasons = (
        (model.replica.instant, "replica.instant is true: no time passes"),
        (any(own.role != "both" for own in machines), "prompts are handed over between machines"),
        (model.fetch.lookup == "cluster", "machines read from each other (fetch.lookup cluster)"),
        (model.fetch.read_buffer_layers is not None, "fetch.read_buffer_layers keeps transfers in one order"),
        (model.prefetch.policy == "session", "prefetch.policy session names machines ahead"),
        (
            model.router.index_blocks is not None or model.router.index.kind != "truth",
            "the router keeps an index of all machines",
        ),
        (model.router.view.interval != 0, "router.view.interval: all machines are polled together"),
        (bool(shared), f"channel {shared[0] if shared else ''} is shared, or not first come, first served"),
    )
    for holds, why in reasons:
        if holds:
            yield ("fleet", "plan"), why


def _by_event(channel: object) -> bool:
    return getattr(channel, "sharing", "fifo") != "fifo" or getattr(channel, "priority", "") == "loads-first"
