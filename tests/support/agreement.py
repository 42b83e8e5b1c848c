"""Agreement of the core with the specification over both stores: equal digests, rows, counters and channels.

Rules of the core that the specification lacks are added to it by models of this package (``spec_models``;
``spec_aborts`` and ``spec_copies``).

``agree`` takes settings and a trace, ``agree_on`` a scenario with ``--set`` values. Where the specification
does
not cover a setting both raise ``BeyondSpec``: a test of such settings needs another judge.
"""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from kvcache_sim.base.errors import InvariantError, KvsimError, UsageError
from kvcache_sim.cache.settings import CacheSettings, MovementSettings
from kvcache_sim.metrics.run import Run
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.serving.settings import (
    ClusterSettings,
    HandoverSettings,
    MachineSettings,
    ReplicaSettings,
    RouterSettings,
)
from kvcache_sim.simulation import RunOptions, simulate
from kvcache_sim.workload.trace import NOT_GIVEN, Lanes, Trace

from support.product.machines import BlockForm
from support.product.spec import Only, coverage
from support.spec_aborts import allow_aborts
from support.spec_copies import charge_copies
from support.spec_models import MODELED, simulation_class
from support.tiered_scenario import BASE, load

#: The specification over the core's store and over its own.
ENGINES: tuple[Literal["spec", "spec-plain"], ...] = ("spec", "spec-plain")


class BeyondSpec(AssertionError):
    """Settings that the specification does not cover, so that it cannot judge a run of them."""


def refuse_beyond_spec(settings: ClusterSettings, trace: Trace) -> None:
    """Raise BeyondSpec where the specification does not cover the settings or the trace."""
    hints = ["hints of the trace's rows"] * bool(len(trace.retention))
    lanes = ["sessions at a time"] * (trace.lanes != Lanes())
    if beyond := [*beyond_spec(settings), *hints, *lanes]:
        raise BeyondSpec(f"not covered by spec/: {', '.join(beyond)}")


def agree(settings: ClusterSettings, trace: Trace) -> Run:
    """Return the core's run, which the specification's two runs equal.

    Raises BeyondSpec where the specification does not cover the settings.
    """
    refuse_beyond_spec(settings, trace)
    native = simulate(settings, trace, options=RunOptions(check="full"))
    assert native.engine.name == "native"
    for engine in ENGINES:
        assert_same(native, by_spec(settings, trace, engine))
    return native


def by_spec(settings: ClusterSettings, trace: Trace, engine: Literal["spec", "spec-plain"]) -> Run:
    """Return a run of the specification, with the models of rules that it lacks."""
    aborts = trace.abort_after_ns
    patient = replace(trace, abort_after_ns=np.full(len(aborts), NOT_GIVEN))
    simulation = simulation_class(settings)(settings, patient, RunOptions(engine=engine))
    if (aborts != NOT_GIVEN).any():
        allow_aborts(simulation.simulator, aborts.tolist())
    if any(one.replica.copy_submit_ns or one.replica.copy_gpu_share for one in settings.machines):
        charge_copies(simulation.simulator)
    return simulation.run()


def agree_on(*overrides: str, text: str = BASE, directory: Path | None = None) -> Run | str:
    """Return the core's run of a scenario, or the one line that refuses it, as by the specification.

    Raises BeyondSpec where the specification does not cover the scenario.
    """
    try:
        scenario = load(*overrides, text=text, directory=directory)
        trace = read_requests(scenario)
    except UsageError as refused:
        return _in_one_line(refused)
    settings = scenario.settings
    refuse_beyond_spec(settings, trace)
    native = run_or_refusal(lambda: simulate(settings, trace, options=RunOptions(check="full")))
    for engine in ENGINES:
        other = run_or_refusal(lambda engine=engine: by_spec(settings, trace, engine))
        if isinstance(native, str) or isinstance(other, str):
            assert native == other
        else:
            assert_same(native, other)
    return native


def run_or_refusal(make: Callable[[], Run]) -> Run | str:
    """Return the call's result, or the one line that refuses it."""
    try:
        return make()
    except InvariantError:
        raise
    except KvsimError as refused:
        return _in_one_line(refused)


def _in_one_line(refusal: KvsimError) -> str:
    line = str(refusal)
    assert "\n" not in line
    return line


def assert_same(run: Run, other: Run) -> None:
    """Check that two runs have equal rows, events, series, counters, channels, tiers, inter-token latencies
    and digests."""
    for table, of_other in zip(_tables(run), _tables(other), strict=True):
        for name, column in columns(table).items():
            assert column == columns(of_other)[name], name
    assert run.counters == other.counters
    assert _channels(run) == _channels(other)
    assert run.tiers == other.tiers
    np.testing.assert_array_equal(run.itl_ns.values_ns, other.itl_ns.values_ns)
    np.testing.assert_array_equal(run.itl_ns.counts, other.itl_ns.counts)
    assert run.end_ns == other.end_ns
    assert (run.digest_events, run.digest_results) == (other.digest_events, other.digest_results)


def _tables(run: Run) -> tuple[Any, ...]:
    return run.requests, run.events, run.series


def columns(table: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the columns of a table of a run as lists; of texts, the words."""
    return {
        name: column.tolist()
        if isinstance(column, np.ndarray)
        else [column.words[code] for code in column.codes]
        for name, column in table.items()
    }


def _channels(run: Run) -> list[tuple[object, ...]]:
    return [
        (
            *(own.name, own.sent_bytes, own.jobs, own.busy_ns, own.queued_ns),
            *(own.needed.tolist(), own.offered.tolist()),
        )
        for own in run.channels
    ]


# -- what the specification covers, of settings made in Python

#: Fields by settings of which the specification covers the values that ``_choices`` does not name; any other
#: field has to be at its default.
_COVERED: dict[type, str] = {
    ClusterSettings: "machines channels cache movement network router handover pool seed",
    CacheSettings: (
        "enabled block_size_tokens policy cache_output touch eviction_batch_blocks overflow full_hit discard_on_finish"
        " scheduler_aware_window kv_bytes_per_token num_layers lookup_ns accounting admission session_view"
        " prefix_view"
    ),
    MovementSettings: (
        "write write_selective_uses fetch fetch_timeout_ns prefetch prefetch_share prefetch_lead_ns"
        " layer_pipelining read_buffer_layers lookup remote_disk channel_choice exclusive"
    ),
    RouterSettings: "policy load_threshold overlap_weight",
    HandoverSettings: "path transfer first_token router network",
    MachineSettings: "tiers step_time replica edge_channels edge_rails role",
    ReplicaSettings: (
        "max_num_batched_tokens max_num_seqs max_model_len instant queue_order duplicate_prefill"
        " step_overhead_ns async_scheduling client_offset_ns client_offset_per_token_ns copy_submit_ns copy_gpu_share"
    ),
}


def beyond_spec(settings: ClusterSettings) -> list[str]:
    """Return the settings that ``spec/`` does not cover."""
    return list(_beyond(settings))


def _beyond(settings: ClusterSettings) -> Iterator[str]:
    parts: list[Any] = [settings, settings.cache, settings.movement, settings.router, settings.handover]
    parts += [*settings.machines, *(machine.replica for machine in settings.machines)]
    for part in parts:
        covered = _COVERED[type(part)].split()
        for field in dataclasses.fields(part):
            made = field.default_factory
            default = field.default if made is dataclasses.MISSING else made()
            if field.name not in covered and getattr(part, field.name) != default:
                yield f"{type(part).__name__}.{field.name}"
    for key, value in _choices(settings):
        row = coverage(key)
        if row is not None and not Only((*row.values, *MODELED.get(key, ())), row.why).covers(value):
            yield f"{key}={value}"
    if any(tier.form != BlockForm() for machine in settings.machines for tier in machine.tiers):
        yield "TierSettings.form"


def _choices(settings: ClusterSettings) -> Iterator[tuple[str, Any]]:
    """Yield the key and the value of each setting of which the specification has some values."""
    cache, movement = settings.cache, settings.movement
    yield from (("cache.policy", cache.policy), ("cache.admission", cache.admission))
    for machine in settings.machines:
        yield "replica.queue_order", machine.replica.queue_order
        for tier in machine.tiers:
            yield f"tiers.{tier.name}.policy", tier.policy
    if settings.pool is not None:
        yield "cluster.pool.policy", settings.pool.policy
    yield from (("router.policy", settings.router.policy), ("handover.router", settings.handover.router))
    yield from (("fetch.policy", movement.fetch), ("prefetch.policy", movement.prefetch))
    yield from (("channel_choice", movement.channel_choice), ("write.policy", movement.write))
