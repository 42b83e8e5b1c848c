"""A scenario's shared pool node as settings: its capacity, its two channels, and its conflicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.tiers import STAGING, TIERS
from kvcache_sim.cache.settings import PoolSettings
from kvcache_sim.cache.store_kinds import TREE, store_kind
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.scenario.channels import Wiring
from kvcache_sim.scenario.cluster_sections import POOL_CHANNELS, SharedPoolSection
from kvcache_sim.scenario.engine_tiers import lower_semantics
from kvcache_sim.scenario.idle import Contradiction, Finding
from kvcache_sim.scenario.quantities import Capacity
from kvcache_sim.scenario.schema import MachineSection, ScenarioModel
from kvcache_sim.scenario.served_model import block_bytes
from kvcache_sim.scenario.yaml_tree import Tree

_PATH = "cluster", "pool"


def with_pool(wiring: Wiring, pool: SharedPoolSection, tree: Tree) -> Wiring:
    """Return the wiring with the channels between each machine and the pool, which has the next index.

    Raises UsageError if a channel of the scenario has the name of one of them.
    """
    channels, pairs = dict(wiring.channels), dict(wiring.network.pairs)
    channel, number = pool.channels, len(wiring.edge_channels)
    for name in POOL_CHANNELS:
        if name in channels:
            raise UsageError(f"channel {name!r} is cluster.pool's", tree.location(("channels", name)))
        channels[name] = ChannelSettings(
            name, channel.bandwidth, channel.latency, channel.piece_overhead, sharing=channel.sharing
        )
    read, write = POOL_CHANNELS
    for machine in range(number):
        pairs |= {(number, machine): read, (machine, number): write}
    return replace(wiring, channels=channels, network=replace(wiring.network, pairs=pairs))


def pool_settings(section: SharedPoolSection, policy: str, block_bytes: int, tree: Tree) -> PoolSettings:
    """Return the pool's capacity and policy; UsageError if it is smaller than one block."""
    capacity: Capacity = section.capacity
    blocks = capacity.blocks if capacity.size_bytes is None else capacity.size_bytes // block_bytes
    if blocks == 0:
        raise UsageError(
            "cluster.pool.capacity is below one block",
            where=tree.location((*_PATH, "capacity")),
            got=str(capacity),
            expected=f"at least {block_bytes} bytes",
        )
    return PoolSettings(blocks, section.policy or policy)


def findings(model: ScenarioModel, machines: Sequence[MachineSection]) -> Iterator[Finding]:
    """Yield reasons why a pool has no effect or conflicts with other settings."""
    section = model.cluster.pool
    if section is None:
        return
    landing = TIERS[STAGING]
    if section.capacity.auto:
        yield Contradiction((*_PATH, "capacity"), "auto is for the tier that computes")
    if (section.policy or model.cache.policy).partition(":")[0] == "ttl":
        yield Contradiction((*_PATH, "policy"), "the pool does not support a time to live")
    if not model.cache.enabled:
        yield _PATH, "cache.enabled is false"
    elif store_kind(model.cache) is not TREE or lower_semantics(model) is not None:
        yield Contradiction(_PATH, "only blocks of the tree are stored there: set cache.semantics tree")
    elif not any(landing in machine.tiers.present for machine in machines):
        yield _PATH, f"KV is staged in a {landing}: add tiers.{landing}"
    elif model.fetch.policy == "never":
        yield _PATH, "fetch.policy is never"
    if len({block_bytes(model, machine.replica) for machine in machines}) > 1:
        yield Contradiction(
            _PATH, "machines have blocks of several sizes: KV heads are copied over their ranks"
        )
