"""A measured host laid under the settings of a replica."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kvcache_sim.errors import UsageError
from kvcache_sim.model.hosts import load_host
from kvcache_sim.scenario.replica_section import ReplicaSection
from kvcache_sim.scenario.section import changed


def with_host(replica: ReplicaSection) -> ReplicaSection:
    """Return the replica with its host's value wherever it has the default.

    Raises UsageError for an unknown host, and for one whose every value is given, so that it has no effect.
    """
    if replica.host is None:
        return replica
    host, given = load_host(replica.host), changed(replica)
    measured = {
        "step_overhead": host.step_overhead_ns,
        "step_overhead_per_sequence": host.step_overhead_per_sequence_ns,
        "async_scheduling": host.async_scheduling,
        "client_offset": host.client_offset_ns,
        "client_offset_per_token": host.client_offset_per_token_ns,
        "copy_submit": host.copy_submit_ns,
        "copy_gpu_share": host.copy_gpu_share,
        "launch_per_layer": host.launch_per_layer_ns,
    }
    taken: dict[str, Any] = {
        key: value for key, value in measured.items() if key not in given and value != getattr(replica, key)
    }
    if not taken:
        raise UsageError("replica.host has no effect", got=host.name, hint="all its values are given already")
    return replace(replica, **taken)
