"""The plug-ins of a replica that the core calls: checked methods, and the classes of what these see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvcache_sim import _core
from kvcache_sim.cache.admission import ADMISSIONS
from kvcache_sim.cache.fetch import FETCH, FETCHES
from kvcache_sim.cache.machine import Machine
from kvcache_sim.cache.moves import Mover
from kvcache_sim.cache.prefetch import PREFETCHES
from kvcache_sim.cache.write import WRITES
from kvcache_sim.cache.write.policy import WritePolicy
from kvcache_sim.channels.choice import CHOICES
from kvcache_sim.channels.edges import AnyChannel
from kvcache_sim.serving.queue import ORDERS, QUEUE_ORDER
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.values import dataclass

#: The name under which the core knows any plug-in.
PLUGIN = "plug-in"


@dataclass(frozen=True, slots=True)
class PluginCall:
    """A method of a plug-in whose answers are checked, and the class of its argument."""

    call: Callable[..., Any]
    view: type


@dataclass(frozen=True, slots=True)
class WriteCall:
    """The checked methods of a plug-in that is the write policy of one edge."""

    at_commit: bool
    delays_step: bool
    committed: Callable[..., Any]
    used: Callable[..., Any]
    arrived: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class ChannelCall:
    """The choice of a plug-in among the channels of one machine's edge."""

    call: Callable[..., Any]
    view: type
    machine: int
    edge: str
    channels: Mapping[str, AnyChannel]

    @property
    def names(self) -> list[str]:
        """The channels' names, in the scenario's order."""
        return list(self.channels)


@dataclass(frozen=True, slots=True)
class ChosenLane:
    """Channels side by side among which a plug-in chooses, in the scenario's order."""

    channels: list[_core.Channel]
    choice: ChannelCall


@dataclass(frozen=True, slots=True)
class PluginRules:
    """The plug-ins that the core calls for one machine, by kind; None: a built-in policy decides."""

    queue: PluginCall | None
    admission: PluginCall | None
    fetch: PluginCall | None
    prefetch: PluginCall | None
    #: By edge, from the GPU down.
    writes: tuple[WriteCall | None, ...]


def plugin_rules(machine: Machine, settings: ReplicaSettings) -> PluginRules:
    """Return the plug-ins of one machine."""
    return PluginRules(
        queue=_queue(settings),
        admission=_admission(machine),
        fetch=_fetch(machine),
        prefetch=_prefetch(machine),
        writes=_writes(machine),
    )


def core_name(name: str, built_in: bool) -> str:
    """Return the name under which the core knows a policy."""
    return name if built_in else PLUGIN


def _queue(settings: ReplicaSettings) -> PluginCall | None:
    if settings.queue_order in ("fcfs", *ORDERS):
        return None
    from kvcache_sim.serving.queue.order import Waiting

    return PluginCall(QUEUE_ORDER.make(settings.queue_order).key, Waiting)


def _admission(machine: Machine) -> PluginCall | None:
    policy = machine.admission
    if policy is None or machine.tree is None or machine.cache.admission in ADMISSIONS:
        return None
    from kvcache_sim.cache.admission.policy import Finished

    return PluginCall(policy.kept_blocks, Finished)


def _fetch(machine: Machine) -> PluginCall | None:
    if machine.movement.fetch in FETCHES:
        return None
    from kvcache_sim.cache.fetch.plan import Part

    return PluginCall(FETCH.make(machine.movement.fetch).reuse, Part)


def _prefetch(machine: Machine) -> PluginCall | None:
    if machine.prefetcher is None or machine.movement.prefetch in PREFETCHES:
        return None
    from kvcache_sim.cache.prefetch.policy import Candidate

    return PluginCall(machine.prefetcher.policy.blocks, Candidate)


def _writes(machine: Machine) -> tuple[WriteCall | None, ...]:
    if machine.writes is None:
        return ()
    return tuple(
        None if name in WRITES else _write(policy)
        for name, policy in zip(edge_writes(machine), machine.writes.policies, strict=True)
    )


def _write(policy: WritePolicy) -> WriteCall:
    return WriteCall(policy.at_commit, policy.delays_step, policy.committed, policy.used, policy.arrived)


def edge_writes(machine: Machine) -> list[str]:
    """Return the name of the write policy of each edge, from the GPU down."""
    return [machine.movement.write.get(name, "back") for name in machine.tiers[:-1]]


def channel_call(mover: Mover, choice: str, edge: str) -> ChannelCall | None:
    """Return the plug-in that chooses among the channels of a machine's edge, None where none does."""
    chosen = None if choice in CHOICES else mover.choice(edge)
    if chosen is None:
        return None
    from kvcache_sim.channels.choice.policy import Sending

    policy, channels = chosen
    return ChannelCall(policy.choose, Sending, mover.machine, edge, channels)
