"""The rules that the core has and no seed asks for, as models that extend the classes of ``spec/``.

``Model`` says which settings ask for a rule, and which classes of the specification it extends.
``simulation_class`` puts the models that a run needs together; a run that needs none has the specification
itself.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.simulation.spec_simulation import Seen
from kvcache_sim.spec.admission import Admitter
from kvcache_sim.spec.batch import Batch, NextStep
from kvcache_sim.spec.channels import Channels, FifoChannel, LayeredChannel
from kvcache_sim.spec.movement_policies import WritePolicies
from kvcache_sim.spec.mover import Mover
from kvcache_sim.spec.records import Milestones
from kvcache_sim.spec.remote import RemoteReads
from kvcache_sim.spec.routers import Router
from kvcache_sim.spec.scheduler import Scheduler
from kvcache_sim.spec.simulator import Simulator

from support.product.spec import SpecSimulation
from support.spec_async import AsyncBatch, AsyncScheduler, AsyncSimulator
from support.spec_fetch import ESTIMATING, EstimatingAdmitter
from support.spec_kept import KeepingScheduler, discards
from support.spec_pool import PoolAdmitter, PoolMover, PoolReads, PoolSimulation, PoolSimulator
from support.spec_prefetch import (
    WAITING,
    PrefetchAdmitter,
    PrefetchScheduler,
    PrefetchSeen,
    PrefetchSimulator,
    has_prefetch,
)
from support.spec_queueing import ORDERS, QueueRules
from support.spec_read_buffers import BufferedChannel, BufferedChannels, BufferedMover, BufferedStep
from support.spec_routers import COSTS, CostMilestones, CostRouter, has_costs
from support.spec_slow_channels import SlowedFifo
from support.spec_staged import StagedReads
from support.spec_store import WholeStoreSimulation
from support.spec_submission import (
    RailMover,
    RailSimulator,
    SubmittedFifo,
    SubmittedLayered,
    has_rails_or_submission,
)
from support.spec_writes import OtherWrites, WritesAdmitter, WritesScheduler, WritesSimulator, has_writes


class Model(NamedTuple):
    """A rule beyond the seeds: the settings that need it, and its extensions of classes of ``spec/``."""

    applies: Callable[[ClusterSettings], bool]
    extends: Mapping[type, type]


def _of_any_replica(name: str, default: Any) -> Callable[[ClusterSettings], bool]:
    return lambda settings: any(getattr(own.replica, name) != default for own in settings.machines)


MODELS = (
    Model(
        lambda settings: (
            bool(settings.cache.scheduler_aware_window)
            or any(
                own.replica.queue_order in ORDERS or own.replica.duplicate_prefill == "wait"
                for own in settings.machines
            )
        ),
        {Scheduler: QueueRules},
    ),
    Model(
        has_prefetch,
        {
            Simulator: PrefetchSimulator,
            Scheduler: PrefetchScheduler,
            Admitter: PrefetchAdmitter,
            Seen: PrefetchSeen,
        },
    ),
    Model(
        _of_any_replica("async_scheduling", "none"),
        {Scheduler: AsyncScheduler, Batch: AsyncBatch, Simulator: AsyncSimulator},
    ),
    Model(
        lambda settings: settings.movement.read_buffer_layers is not None,
        {
            Channels: BufferedChannels,
            LayeredChannel: BufferedChannel,
            Mover: BufferedMover,
            NextStep: BufferedStep,
        },
    ),
    Model(
        has_rails_or_submission,
        {
            Simulator: RailSimulator,
            Mover: RailMover,
            FifoChannel: SubmittedFifo,
            LayeredChannel: SubmittedLayered,
        },
    ),
    Model(
        lambda settings: any(channel.slowdowns for channel in settings.channels.values()),
        {FifoChannel: SlowedFifo},
    ),
    Model(discards, {Scheduler: KeepingScheduler}),
    Model(lambda settings: settings.movement.remote_disk == "staged", {RemoteReads: StagedReads}),
    Model(lambda settings: settings.movement.fetch in ESTIMATING, {Admitter: EstimatingAdmitter}),
    Model(has_costs, {Router: CostRouter, Milestones: CostMilestones}),
    Model(
        has_writes,
        {
            Simulator: WritesSimulator,
            Scheduler: WritesScheduler,
            Admitter: WritesAdmitter,
            WritePolicies: OtherWrites,
        },
    ),
    Model(
        lambda settings: settings.pool is not None,
        {
            SpecSimulation: PoolSimulation,
            Simulator: PoolSimulator,
            Admitter: PoolAdmitter,
            Mover: PoolMover,
            RemoteReads: PoolReads,
        },
    ),
    Model(
        lambda settings: (
            settings.pool is not None
            or has_writes(settings)
            or discards(settings)
            or has_prefetch(settings)
            or bool(settings.cache.scheduler_aware_window)
            or (settings.cache.touch, settings.cache.eviction_batch_blocks) != ("release", 1)
        ),
        {SpecSimulation: WholeStoreSimulation},
    ),
)

#: Values of keys that the specification refuses and a model has.
MODELED: dict[str, tuple[Any, ...]] = {
    "cache.admission": ("prompt",),
    "channel_choice": ("emptiest",),
    "cluster.pool.policy": ("lru", "fifo", "lfu", "ttl"),
    "fetch.policy": (*WAITING, *ESTIMATING),
    "prefetch.policy": ("queued", "session"),
    "router.policy": tuple(COSTS),
    "handover.router": tuple(COSTS),
    "write.policy": ("through-sync", "selective"),
    "replica.queue_order": tuple(ORDERS),
}


def simulation_class(settings: ClusterSettings) -> type[SpecSimulation]:
    """Return the specification's simulation with the models that the settings ask for."""
    models = [model.extends for model in MODELS if model.applies(settings)]
    return _extended(SpecSimulation, models) if models else SpecSimulation


def _extended(base: type, models: list[Mapping[type, type]]) -> Any:
    """Return a class and those that it names (``..._class``) with the models of each in front."""
    named = {
        name: _extended(getattr(base, name), models)
        for name in dir(base)
        if name.endswith("_class") and not name.startswith("_")
    }
    own = [model[line] for line in base.__mro__ for model in models if line in model]
    return type(base.__name__, (*own, base), named)
