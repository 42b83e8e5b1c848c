"""A run over a trace that is read in windows: its conditions, and the step between two windows."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim import _core
from kvcache_sim.base.errors import InvariantError
from kvcache_sim.cache.settings import PrefixViewSettings
from kvcache_sim.cache.store_kinds import TOKENS, store_kind
from kvcache_sim.cache.stores import StoreMaker
from kvcache_sim.serving.queue import ORDERS
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.router.registry import needs_of
from kvcache_sim.serving.settings import ClusterSettings, MachineSettings
from kvcache_sim.simulation.options import RunOptions
from kvcache_sim.workload.key_arrays import key_arrays
from kvcache_sim.workload.readers.stream import TraceStream
from kvcache_sim.workload.trace import Trace


def can_stream(settings: ClusterSettings, options: RunOptions) -> bool:
    """Return True if a run does not need requests after they finish: its trace may be read in windows.

    Condition: the core serves GPUs without lower tiers that keep a tree in order of recency, and no policy
    uses the trace afterwards. Any part that remembers requests (lower tiers, ghosts of evicted blocks, a
    router's own index, the gate of shared prefixes, the specification) needs the whole trace.
    """
    cache = settings.cache
    return (
        cache.semantics == "tree"
        and store_kind(cache) is not TOKENS
        and cache.groups is None
        and cache.prefix_view == PrefixViewSettings()
        and cache.admission in ("all", "prompt")
        and settings.router.index_blocks is None
        and settings.membership.nothing_happens
        and settings.router.index_kind == "truth"
        and ":" not in settings.router.policy
        and not needs_of(settings.router.policy).sent_blocks
        and all(_stands_alone(machine) for machine in settings.machines)
        and options.engine == "native"
        and not (options.causes or options.prefixes)
    )


def _stands_alone(machine: MachineSettings) -> bool:
    replica = machine.replica
    return (
        len(machine.tiers) == 1
        and machine.tiers[0].policy == "lru"
        and machine.role == "both"
        and not replica.instant
        and replica.speculation is None
        and replica.duplicate_prefill == "recompute"
        and replica.queue_order in ("fcfs", *ORDERS)
    )


class Windows:
    """The windows of a trace, read as the machines' stores need them."""

    def __init__(self, stream: TraceStream, replicas: Sequence[NativeReplica], stores: StoreMaker) -> None:
        self._stream = stream
        self._block_size_tokens = stores.cache.block_size_tokens
        keys = stores.keys
        trees = [replica.store for replica in replicas]
        self._stores = [tree for tree in trees if isinstance(tree, _core.Store)]
        if keys is None or len(self._stores) != len(replicas):
            raise InvariantError("a trace in windows, and machines that need all of it")
        self._keys = keys

    @property
    def requests(self) -> int:
        """Number of requests in the windows so far."""
        return self._stream.requests

    def next(self, open_requests: list[int]) -> Trace | None:
        """Return the next window; block keys then cover it, the cached blocks, and open requests."""
        kept = self._keys.kept(self._stores, open_requests)
        trace = self._stream.next(kept.kept_ids())
        if trace is None:
            return None
        offsets, ids, _, full, _ = key_arrays(trace, self._block_size_tokens)
        self._keys = kept.appended(offsets, ids, full)
        for store in self._stores:
            store.take_keys(self._keys)
        return trace
