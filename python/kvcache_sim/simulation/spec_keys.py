"""The settings of a scenario that the specification covers (``--engine spec``): one row per schema key.

A row is ``COVERED``, or ``Only`` with the covered values and the tests of the other values. A section's row
covers all its keys without a row of their own; ``NAME`` stands for any name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.tiers import COMPUTE, STAGING, TIERS
from kvcache_sim.cache.settings import FORM_KEYS
from kvcache_sim.spec.movement_policies import FETCH
from kvcache_sim.spec.routers import ROUTERS


class Only(NamedTuple):
    """The covered values of a key, and the reason why other values are not covered."""

    values: tuple[Any, ...]
    why: str

    def covers(self, value: Any) -> bool:
        """Return True if a value is covered; mappings and lists need all their parts covered.

        A policy's name may have a setting after a colon; an event or a fault is identified by its kind.
        """
        if isinstance(value, Mapping):
            return self.covers(value["do"]) if "do" in value else all(map(self.covers, value.values()))
        if isinstance(value, list):
            return all(map(self.covers, value))
        name = value.partition(":")[0] if isinstance(value, str) else value
        return any(type(name) is type(covered) and name == covered for covered in self.values)


COVERED = None

_ENGINES = "no seed asks for engines' own schedulers, caches and tiers: recorded rows judge them"
_FLEET = "no seed asks for fleets that change"
_ROUTERS = "plain routers that see the machines as they are"
_PLUG_INS = "the policies of the seeds"
_EVICTION = Only((None, "lru", "fifo", "lfu", "ttl"), "four eviction orders; replays judge the others")
_BEYOND = "no seed asks for it"

COVERAGE: dict[str, Only | None] = {
    "name": COVERED,
    "seed": COVERED,
    "model": COVERED,
    "trace": COVERED,
    "workload": COVERED,
    "cache": COVERED,
    "cache.semantics": Only(("tree",), _ENGINES),
    "cache.layer_groups": Only((None, "as-full"), _ENGINES),
    "cache.retention_interval": Only((0,), _ENGINES),
    "cache.policy": _EVICTION,
    "cache.touch": Only(("release",), _BEYOND),
    "cache.eviction_batch_blocks": Only((1,), _BEYOND),
    "cache.scheduler_aware_window": Only((0,), _BEYOND),
    "cache.admission": Only(("all",), _BEYOND),
    "cache.discard_on_finish": Only((False,), _BEYOND),
    "session_view": COVERED,
    "prefix_view": COVERED,
    "tiers": COVERED,
    **{f"tiers.{tier}.policy": _EVICTION for tier in TIERS},
    f"tiers.{TIERS[STAGING]}.semantics": Only((None,), _ENGINES),
    **{f"tiers.{tier}.{key}": Only((None,), _BEYOND) for tier in TIERS[COMPUTE + 1 :] for key in FORM_KEYS},
    **{f"handover.{key}": Only((None, 1.0), _BEYOND) for key in FORM_KEYS},
    "replica": COVERED,
    "replica.scheduler": Only(("kvsim",), _ENGINES),
    "replica.watermark": Only((0.0,), _ENGINES),
    "replica.reserve_full_isl": Only((True,), _ENGINES),
    "replica.long_prefill_token_threshold": Only((0,), _ENGINES),
    "replica.long_prefill_token_threshold_adaptive": Only((False,), _ENGINES),
    "replica.max_num_scheduled_tokens": Only((None,), _ENGINES),
    "replica.max_num_active_seqs": Only((None,), _ENGINES),
    "replica.prefill_schedule_interval": Only((1,), _ENGINES),
    "replica.max_num_queued_reqs": Only((None,), _ENGINES),
    "replica.max_num_queued_tokens": Only((None,), _ENGINES),
    "replica.max_queued_requests": Only((None,), _ENGINES),
    "replica.priority_preemption": Only((10,), _ENGINES),
    "replica.schedule_policy": Only(("fcfs",), _ENGINES),
    "replica.max_prefill_tokens": Only((16384,), _ENGINES),
    "replica.enable_mixed_chunk": Only((False,), _ENGINES),
    "replica.schedule_conservativeness": Only((1.0,), _ENGINES),
    "replica.queue_order": Only(("fcfs",), _BEYOND),
    "replica.duplicate_prefill": Only(("recompute",), _BEYOND),
    "replica.async_scheduling": Only(("none",), _BEYOND),
    "replica.dp": Only((1,), "no seed asks for ranks"),
    "replica.pp": Only((None,), _ENGINES),
    "replica.speculation": Only((None,), "no seed asks for speculative decoding"),
    "replica.copy_submit": Only(("0ns",), "copies take no time from the steps"),
    "replica.copy_gpu_share": Only((0.0,), "copies take no time from the steps"),
    "cluster": COVERED,
    "cluster.pool": Only((None,), _BEYOND),
    "pools": COVERED,
    "machines": COVERED,
    "router": COVERED,
    "router.policy": Only(tuple(ROUTERS), _ROUTERS),
    "router.affinity": Only((None,), _ROUTERS),
    "router.temperature": Only((0.0,), _ROUTERS),
    "router.cache_threshold": Only((0.3,), _ROUTERS),
    "router.balance_abs_threshold": Only((64,), _ROUTERS),
    "router.balance_rel_threshold": Only((1.5,), _ROUTERS),
    "router.scorers": Only((3.0, 2.0), _ROUTERS),
    "router.kv_aware_threshold": Only((2000,), _ROUTERS),
    "router.load_weight": Only((1.0,), _ROUTERS),
    "router.max_load_skew": Only((1.5,), _ROUTERS),
    "router.view.interval": Only(("0ns",), _ROUTERS),
    "router.index.kind": Only(("truth",), _ROUTERS),
    "router.index.eviction_interval": Only(("120s",), _ROUTERS),
    "router.index_blocks": Only((None,), _ROUTERS),
    "router.index_delay": Only(("0ns",), _ROUTERS),
    "handover": COVERED,
    "handover.router": Only(tuple(ROUTERS), _ROUTERS),
    "handover.decide": Only(("always",), _BEYOND),
    "handover.threshold_tokens": Only((None,), _BEYOND),
    "handover.threshold_share": Only((0.7,), _BEYOND),
    "handover.min_prompt_tokens": Only((0,), _BEYOND),
    "handover.prefill_busy": Only((None,), _BEYOND),
    "channels": COVERED,
    "channels.NAME.piece_submit": Only(("0ns",), _BEYOND),
    "channel_choice": Only(("assigned",), _BEYOND),
    "fetch": COVERED,
    "fetch.policy": Only(tuple(FETCH), _PLUG_INS),
    "fetch.exclusive": Only((None,), _BEYOND),
    "fetch.remote_disk": Only(("direct",), _BEYOND),
    "fetch.read_buffer_layers": Only((None,), _BEYOND),
    "fetch.timeout_per_ki_token": Only((None,), _ENGINES),
    "write": COVERED,
    "write.policy": Only(("back", "through"), _BEYOND),
    "prefetch": COVERED,
    "prefetch.policy": Only(("none",), _BEYOND),
    "prefetch.threshold": Only((None,), _ENGINES),
    "fleet": COVERED,
    "fleet.plan": Only((None,), _FLEET),
    "fleet.faults": Only((None,), _FLEET),
    "fleet.scaling": Only((None,), _FLEET),
    "measure": COVERED,
    "slo": COVERED,
    "cost": COVERED,
    "retention": Only((None,), _BEYOND),
    "tenants": Only((None,), _BEYOND),
    "models": Only((None,), _BEYOND),
    "adapters": Only((None,), _BEYOND),
}


def coverage(key: str) -> Only | None:
    """Return the row of a dotted key, or of the nearest enclosing section; KeyError if there is none."""
    while key not in COVERAGE:
        key, dot, _ = key.rpartition(".")
        if not dot:
            raise KeyError(key)
    return COVERAGE[key]


def uncovered(resolved: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], UsageError]]:
    """Yield the path of each setting of a resolved scenario that is not covered, with its error.

    The error lacks the location of the setting.
    """
    yield from _uncovered(resolved, (), "")
    workload = resolved.get("workload", {})
    if "kind" not in workload and (count := workload.get("concurrency")) is not None:
        what, hint = "sessions at a time are not covered by spec/", f"{_BEYOND}; --engine native has it"
        yield ("workload", "concurrency"), UsageError(what, "", str(count), "null", hint)
    for number, machine in enumerate(resolved.get("machines", ())):
        yield from _uncovered(machine, ("machines", number), "")


def _uncovered(
    values: Mapping[str, Any], at: tuple[str | int, ...], prefix: str
) -> Iterator[tuple[tuple[str | int, ...], UsageError]]:
    for name, value in values.items():
        key = f"{prefix}{name}"
        row = COVERAGE.get(key)
        if row is not None:
            if not row.covers(value):
                words = ", ".join("null" if covered is None else str(covered) for covered in row.values)
                hint = f"{row.why}; --engine native has it"
                said = key.replace("NAME", str(at[-1])) if "NAME" in key else key
                yield (
                    (*at, name),
                    UsageError(f"{said} is not covered by spec/", "", _said(value), words, hint),
                )
        elif isinstance(value, Mapping):
            nested = f"{prefix}NAME" if prefix == "channels." else key
            yield from _uncovered(value, (*at, name), f"{nested}.")


def _said(value: Any) -> str:
    return "a section" if isinstance(value, Mapping) else str(value)
