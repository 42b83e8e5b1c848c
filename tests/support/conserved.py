"""Conservation: every request has a row, every token is accounted for, nothing is held at the end, and no
engine is idle while a request waits."""

import math

import numpy as np
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.metrics.run import Run
from kvcache_sim.simulation import Simulation


def check_conserved(scenario, made) -> None:
    """Every request that arrived has one row, and every token of the trace is finished, failed or rejected."""
    rows, trace, counts = made.run.requests, made.trace, made.summary["requests"]
    assert counts["arrived"] == len(trace) == sum(counts[name] for name in STATUSES)
    gives_up = len(trace.abort_after_ns) and (trace.abort_after_ns >= 0).any()
    assert gives_up or counts["aborted"] == 0
    assert np.array_equal(rows["request"], np.arange(len(trace)))
    by_status = [int((rows["status"] == status).sum()) for status in range(len(STATUSES))]
    assert by_status == [counts[name] for name in STATUSES]
    for column, of_trace in (("input_tokens", trace.input_tokens), ("output_tokens", trace.output_tokens)):
        assert sum(int(rows[column][rows["status"] == s].sum()) for s in range(len(STATUSES))) == int(
            of_trace.sum()
        )
    lost = {
        event.machine: event.at_ns for event in scenario.settings.membership.events if event.change == "lose"
    }
    for machine, at_ns in lost.items():
        done = rows["machine"] == machine
        assert (rows["finish_ns"][done & (rows["status"] == 0)] <= at_ns).all()


def check_the_end(simulation: Simulation, run: Run) -> None:
    """Check that nothing is held, in transit or waited for, and that the channels carried what the edges
    moved."""
    for replica in simulation.replicas:
        assert replica.counts()[:3] == (0, 0, 0), "waiting, running, waiting for KV"
        for tier in range(replica.tiers):
            found = replica.store.occupancy(tier)
            in_use = (found.held_blocks, found.private_blocks, found.in_flight_blocks)
            assert in_use == (0, 0, 0), f"I3: machine {replica.machine}, tier {tier}"
    edges = sum(n for name, n in run.counters.items() if name.startswith("edge."))
    if simulation.settings.pool is None:  # whose writes belong to no machine's edge
        assert edges == sum(use.sent_bytes for use in run.channels), "I9"
    settings, units = simulation.settings, []
    for index, machine in enumerate(settings.machines):
        cache = settings.cache_of(index)
        unit = cache.block_size_tokens * cache.kv_bytes_per_token
        if cache.groups is not None:  # a block of a group moves alone, as pages of its own layers
            unit = cache.groups.layout.page_bytes * cache.groups.gpus
        forms = settings.handover.form, *(tier.form for tier in machine.tiers)
        units += [form.bytes_of(unit) for form in forms]
    assert edges % math.gcd(*units) == 0, "I9"
    for name, link in simulation.channels.items():
        assert link.busy_ns <= run.end_ns, f"I5: {name}"
    rows = run.requests
    done = rows["status"] == 0
    assert (rows["finish_ns"][done] >= rows["first_token_ns"][done]).all(), "I6"
    least = 0 if simulation.settings.machines[0].replica.instant else 1
    assert (rows["first_token_ns"] - rows["arrival_ns"] >= least)[done].all(), "I6"


def steps_of(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Return (start, end) of each step of a run, in order."""
    kind = run.events["kind"]
    steps = np.asarray(kind.codes) == kind.words.index("step")
    start = np.asarray(run.events["time_ns"])[steps]
    order = np.argsort(start)
    return start[order], (start + np.asarray(run.events["duration_ns"])[steps])[order]


def check_never_idle(run: Run) -> None:
    """I12 of a run of one machine whose only tier is the GPU, with its steps recorded."""
    start, end = steps_of(run)
    idle_from, idle_to = end[:-1], start[1:]
    rows = run.requests
    done = rows["status"] == 0
    if not done.any():
        return
    waits_from = (rows["arrival_ns"] + rows["client_ns"])[done]
    waits_to = waits_from + rows["queue_ns"][done]
    for gap_from, gap_to in zip(idle_from, idle_to, strict=True):
        waiting = (np.minimum(waits_to, gap_to) - np.maximum(waits_from, gap_from)) > 0
        assert not waiting.any(), f"idle from {gap_from} to {gap_to} ns"
    assert (waits_to[waits_from < start[0]] <= start[0]).all(), "idle before its first step"
