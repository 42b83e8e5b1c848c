"""A scenario's ``fleet`` section as settings, and its conflicts with other sections."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kvcache_sim.base.tiers import STAGING, TIERS
from kvcache_sim.cache.store_kinds import Ability, store_kind
from kvcache_sim.scenario.channels import DEFAULT_CHANNELS
from kvcache_sim.scenario.cluster_sections import (
    POOL_CHANNELS,
    FaultSection,
    FleetEventSection,
    contradictions,
    idle,
    scaling_settings,
)
from kvcache_sim.scenario.fleet_events import FleetEvent, fleet_events
from kvcache_sim.scenario.idle import Contradiction, Finding
from kvcache_sim.scenario.request_effects import keeps_an_index
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel, by_event
from kvcache_sim.scenario.section import changed
from kvcache_sim.scenario.served_model import cache_groups
from kvcache_sim.scenario.yaml_tree import Path, Tree
from kvcache_sim.serving.membership.plan import Flush, MembershipEvent, MembershipPlan, PoolLoss, TierLoss

#: Keys of each kind of event; ``share`` of a channel and the times of each kind are separate.
_TAKES: dict[str, frozenset[str]] = {
    "join": frozenset(),
    "drain": frozenset({"machine"}),
    "lose": frozenset({"machine", "repair"}),
    "lose-tier": frozenset({"machine", "tier"}),
    "lose-index": frozenset(),
    "lose-pool": frozenset(),
    "slow": frozenset({"machine", "channel", "share", "lasts", "repair"}),
    "flush": frozenset({"machine"}),
}
#: Keys that only some kinds of event take.
_OPTIONS = frozenset().union(*_TAKES.values())
_Kind = FleetEventSection | FaultSection
_COMES_AND_GOES = ("join", "drain", "lose")


def membership_plan(model: ScenarioModel, tree: Tree, block: tuple[int, int]) -> MembershipPlan:
    """Return the joins, leaves and losses in order of time; ``block``: its bytes and tokens.

    Raises UsageError for an event of a machine that does not exist at its time.
    """
    events = fleet_events(model, tree)
    changes, tiers, flushes = [], [], []
    for event in events:
        if event.do == "join" or event.do == "drain" or event.do == "lose":
            changes.append(MembershipEvent(event.at_ns, event.do, _machine(event)))
        elif event.do == "lose-tier":
            tiers.append(TierLoss(event.at_ns, _machine(event), TIERS.index(event.tier)))
        elif event.do == "flush":
            flushes.append(Flush(event.at_ns, event.machine))
    lost_pools = tuple(PoolLoss(event.at_ns) for event in events if event.do == "lose-pool")
    forgets = tuple(event.at_ns for event in events if event.do == "lose-index")
    section, first = model.fleet.scaling, model.cluster.machines
    scaling = None if section is None else scaling_settings(section, first, model.fleet.startup, *block)
    return MembershipPlan(
        tuple(changes), model.fleet.in_flight, tuple(tiers), forgets, tuple(flushes), lost_pools, scaling
    )


def _machine(event: FleetEvent) -> int:
    assert event.machine is not None, "checked where the plan was read"
    return event.machine


def findings(model: ScenarioModel, machines: tuple[MachineSection, ...]) -> Iterator[Finding]:
    """Yield settings of a fleet without effect or in conflict with other settings, and the reason."""
    fleet = model.fleet
    of_plan: list[tuple[Path, _Kind]] = [
        (("fleet", "plan", n), planned) for n, planned in enumerate(fleet.plan)
    ]
    both = of_plan + [(("fleet", "faults", n), planned) for n, planned in enumerate(fleet.faults)]
    happens = {planned.do for _, planned in both}
    if fleet.faults and fleet.faults_until is None:
        yield Contradiction(("fleet", "faults"), "add fleet.faults_until: the end of random faults")
    if not fleet.faults and fleet.faults_until is not None:
        yield ("fleet", "faults_until"), "fleet.faults is empty"
    joins = "join" in happens or any(planned.do == "lose" and planned.repair for planned in fleet.faults)
    if fleet.scaling is not None:
        yield from _of_scaling(model, happens)
    if fleet.startup and not joins and fleet.scaling is None:
        yield ("fleet", "startup"), "no machine joins" if happens else "fleet.plan is empty"
    if fleet.in_flight != "retry" and "lose" not in happens:
        yield ("fleet", "in_flight"), "no machine is lost" if happens else "fleet.plan is empty"
    for path, planned in both:
        yield from _of_one(model, machines, path, planned)
    whole: Path = ("fleet", "plan" if fleet.plan else "faults" if fleet.faults else "scaling")
    pool = model.cluster.pool
    channels = [*model.channels.values(), *([] if pool is None else [pool.channels])]
    if "slow" in happens and any(map(by_event, channels)):
        yield whole, "a channel is shared fairly or serves loads first, so none has times of its own"
    if "slow" in happens and model.fetch.read_buffer_layers is not None:
        yield whole, "fetch.read_buffer_layers serves channels layer by layer"
    if (happens or fleet.scaling is not None) and model.replica.instant:
        yield whole, "replica.instant is true: no time passes"
    if happens.isdisjoint(_COMES_AND_GOES) and fleet.scaling is None:
        return
    shared = [
        name for name, planned in model.channels.items() if planned.scope != "machine" or by_event(planned)
    ]
    reasons = (
        (any(planned.role != "both" for planned in machines), "prompts are handed over between machines"),
        (model.fetch.lookup == "cluster", "machines read from each other (fetch.lookup cluster)"),
        (model.cluster.pool is not None, "machines write and read cluster.pool"),
        (model.fetch.read_buffer_layers is not None, "fetch.read_buffer_layers keeps transfers in one order"),
        (model.prefetch.policy == "session", "prefetch.policy session chooses machines in advance"),
        (
            model.router.index_blocks is not None or model.router.index.kind != "truth",
            "the router keeps an index of all machines",
        ),
        (model.router.view.interval != 0, "router.view.interval: all machines are polled together"),
        (bool(shared), f"channel {shared[0] if shared else ''} is shared, or not first come, first served"),
        (
            model.replica.dp > 1 and (bool(happens & {"join", "lose"}) or fleet.scaling is not None),
            "machines are ranks of one engine (replica.dp), of which none can be missing",
        ),
    )
    for holds, why in reasons:
        if holds:
            yield whole, why


def _of_scaling(model: ScenarioModel, happens: Collection[str]) -> Iterator[Finding]:
    """Yield settings that rule out autoscaling, and settings of the section without effect."""
    section, path = model.fleet.scaling, ("fleet", "scaling")
    assert section is not None
    for key, why in contradictions(section, model.cluster.machines):
        yield Contradiction((*path, *key), why)
    for key, why in idle(section):
        yield (*path, *key), why
    if any(kind in _COMES_AND_GOES for kind in happens):
        yield Contradiction(path, "fleet.plan or fleet.faults decide which machines join and leave")
    if model.machines:
        yield Contradiction(path, "machines differ: the kind of a joining machine is undefined")
    yield from ((path, why) for why in cannot_be_emptied(model))


def cannot_be_emptied(model: ScenarioModel) -> Iterator[str]:
    """Yield reasons why caches cannot be emptied at once."""
    if model.cache.accounting == "simplified":
        yield "cache.accounting simplified keeps tokens of sessions: they are not emptied"
    if model.tiers.compute.semantics is not None or any(
        tier.semantics is not None for tier in model.tiers.lower.values()
    ):
        yield "a tier with an engine's own rules is not emptied"
    if cache_groups(model) is not None:
        yield "a pool of several cache groups is not emptied"


def _of_one(
    model: ScenarioModel,
    machines: tuple[MachineSection, ...],
    path: Path,
    event: _Kind,
) -> Iterator[Finding]:
    """Yield keys that one event or fault lacks or cannot take, and targets that do not exist."""
    for key in changed(event):
        # a join that names a machine is refused where machine indices are assigned
        if key in _OPTIONS - _TAKES[event.do] and event.do != "join":
            yield Contradiction((*path, key), f"a {event.do} takes no {key}")
    if event.do == "lose-tier":
        if event.tier not in TIERS[STAGING:] or not all(
            event.tier in each.tiers.present for each in machines
        ):
            yield Contradiction(path, f"tier: one of {', '.join(TIERS[STAGING:])} that every machine has")
        elif why := store_kind(model.cache).lacks.get(Ability.LOWER_TIERS):
            yield path, why
    if event.do == "lose-pool" and model.cluster.pool is None:
        yield path, "machines share no pool: set cluster.pool"
    if event.do == "flush":
        yield from ((path, why) for why in cannot_be_emptied(model))
    if event.do == "lose-index" and not keeps_an_index(model):
        yield path, "the router keeps no index: it looks at what the machines have"
    if event.do == "slow":
        of_pool = () if model.cluster.pool is None else POOL_CHANNELS
        names = list(dict.fromkeys([*model.channels, *DEFAULT_CHANNELS, *of_pool]))
        if event.channel not in names:
            yield Contradiction(path, f"channel: one of {', '.join(names)}")
        section = model.channels.get(event.channel or "")
        if isinstance(event, FleetEventSection) and event.machine is not None:
            if section is not None and section.scope != "machine":
                yield Contradiction((*path, "machine"), f"channel {event.channel} is not one machine's")
            elif event.machine >= len(machines):
                yield Contradiction((*path, "machine"), f"there are machines 0 to {len(machines) - 1}")
