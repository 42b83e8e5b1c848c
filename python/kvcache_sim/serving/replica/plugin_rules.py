"""The plug-ins of a replica that the core calls: checked methods, and the classes of what these see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvcache_sim.cache.admission import ADMISSION, ADMISSIONS
from kvcache_sim.cache.fetch import FETCH, FETCHES
from kvcache_sim.cache.machine import Machine
from kvcache_sim.cache.tier_rules import WriteCall, write_call
from kvcache_sim.serving.queue import ORDERS, QUEUE_ORDER
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.values import Value


class PluginCall(Value):
    """A method of a plug-in whose answers are checked, and the class of its argument."""

    call: Callable[..., Any]
    view: type


class PluginRules(Value):
    """The plug-ins that the core calls for one machine, by kind; None: a built-in policy decides."""

    queue: PluginCall | None
    admission: PluginCall | None
    fetch: PluginCall | None
    prefetch: PluginCall | None
    #: By edge, from the GPU down.
    writes: tuple[WriteCall | None, ...]


def plugin_rules(machine: Machine, settings: ReplicaSettings) -> PluginRules:
    """Return the plug-ins of one machine."""
    admission = _admission(machine)
    return PluginRules(
        queue=_queue(settings),
        admission=admission,
        fetch=_fetch(machine),
        prefetch=_prefetch(machine),
        writes=tuple(map(write_call, machine.writes)),
    )


def _queue(settings: ReplicaSettings) -> PluginCall | None:
    if settings.queue_order in ("fcfs", *ORDERS):
        return None
    from kvcache_sim.serving.queue.order import Waiting

    return PluginCall(QUEUE_ORDER.make(settings.queue_order).key, Waiting)


def _admission(machine: Machine) -> PluginCall | None:
    name = machine.cache.admission
    if name in ADMISSIONS:
        return None
    policy = ADMISSION.make(name)
    if machine.tree is None:
        return None
    from kvcache_sim.cache.admission.policy import Finished

    return PluginCall(policy.kept_blocks, Finished)


def _fetch(machine: Machine) -> PluginCall | None:
    if machine.movement.fetch in FETCHES:
        return None
    from kvcache_sim.cache.fetch.policy import Part

    return PluginCall(FETCH.make(machine.movement.fetch).reuse, Part)


def _prefetch(machine: Machine) -> PluginCall | None:
    if machine.prefetch is None:
        return None
    from kvcache_sim.cache.prefetch.policy import Candidate

    return PluginCall(machine.prefetch.blocks, Candidate)
