"""Relations of two runs that hold for every engine: no model of its scheduler is needed to judge it.

Each returns False for a scenario that it does not concern, and fails an assertion where it does not hold.
"""

from dataclasses import replace

import numpy as np
from kvcache_sim.channels.settings import NetworkSettings
from kvcache_sim.metrics.run import Run
from kvcache_sim.policies.plugins.contract import PolicyViolation
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.simulation import RunOptions, Simulation
from kvcache_sim.workload.trace import NO_SESSION, NOT_GIVEN, OPEN_LOOP, Trace
from support.product.traces import select_rows

from vopr.finding import oracle

#: A multiple of every interval of a router or a gauge, so that they fall as before.
LATER_NS = 3_600_000_000_000
#: Columns of a request that are times since the start.
MOMENTS = ("arrival_ns", "first_token_ns", "finish_ns")
#: Columns that name requests, sessions and machines.
NAMES = {"request", "session", "machine", "decode_machine"}


def judge(settings: ClusterSettings, trace: Trace, run: Run, has_plugins: bool) -> list[str]:
    """Raise Finding if a relation does not hold; return in a word whether one concerned the scenario."""
    concerned = False
    twice = () if has_plugins else (doubled,)  # plug-ins see the numbers of requests
    for relation in (later, not_yet, patience, *twice):
        with oracle(relation.__name__, (PolicyViolation,)):  # of a plug-in whose calls raise from a number on
            concerned |= relation(settings, trace, run)
    return ["relations"] if concerned else []


def later(settings: ClusterSettings, trace: Trace, run: Run) -> bool:
    """Requests that come an hour later are served an hour later, in the same time."""
    if not settings.membership.nothing_happens or any(link.slowdowns for link in settings.channels.values()):
        return False
    if _is_closed(trace) and settings.machines[0].replica.instant:
        return False  # a request comes no sooner than its think time after 0
    rows = _run(settings, replace(trace, arrival_ns=trace.arrival_ns + LATER_NS)).requests
    for name in MOMENTS:
        rows[name] = np.where(rows[name] < 0, rows[name], rows[name] - LATER_NS)
    for name, column in run.requests.items():
        np.testing.assert_array_equal(rows[name], column, name)
    return True


def not_yet(settings: ClusterSettings, trace: Trace, run: Run) -> bool:
    """Requests that have not come change nothing of those that have ended."""
    arrivals = trace.arrival_ns
    first = len(trace) // 2
    if _is_closed(trace) or (np.diff(arrivals) < 0).any() or settings.cache.policy == "belady":
        return False
    first = int(np.searchsorted(arrivals, arrivals[first]))
    if not first:
        return False
    rows = _run(settings, select_rows(trace, np.arange(first))).requests
    ended = [
        (own >= 0) & (own < arrivals[first]) for own in (rows["finish_ns"], run.requests["finish_ns"][:first])
    ]
    for name, column in rows.items():
        np.testing.assert_array_equal(column[ended[0]], run.requests[name][:first][ended[1]], name)
    return bool(ended[0].any())


def patience(settings: ClusterSettings, trace: Trace, run: Run) -> bool:
    """Clients that would hang up after their answers change nothing."""
    if not settings.membership.nothing_happens or settings.tenants is not None:
        return False  # refused together with clients that leave
    rows = run.requests
    waited_ns = np.where(rows["finish_ns"] < 0, NOT_GIVEN, rows["finish_ns"] - rows["arrival_ns"] + 1)
    asked = trace.abort_after_ns if len(trace.abort_after_ns) else np.full(len(trace), NOT_GIVEN)
    other = _run(settings, replace(trace, abort_after_ns=np.where(asked == NOT_GIVEN, waited_ns, asked)))
    for name, column in rows.items():
        np.testing.assert_array_equal(other.requests[name], column, name)
    return True


def doubled(settings: ClusterSettings, trace: Trace, run: Run) -> bool:
    """Two machines that get every request in turn are the first of the cluster alone, twice."""
    machine = settings.machines[0]
    drawn = machine.replica.speculation is not None or machine.replica.ranks > 1
    if _is_closed(trace) or not settings.membership.nothing_happens or machine.role != "both" or drawn:
        return False
    if settings.pool is not None or settings.tenants is not None or settings.models is not None:
        return False
    if machine.replica.instant or settings.movement.lookup != "local":
        return False  # one request at a time in all the cluster, or its copy's blocks
    copy = replace(
        machine,
        edge_channels={edge: f"{name}'" for edge, name in machine.edge_channels.items()},
        edge_rails={edge: tuple(f"{name}'" for name in names) for edge, names in machine.edge_rails.items()},
    )
    router = replace(settings.router, policy="round-robin")
    alone = replace(settings, machines=(machine,), router=router, network=NetworkSettings())
    channels = {f"{name}'": replace(own, name=f"{name}'") for name, own in settings.channels.items()}
    both = replace(alone, machines=(machine, copy), channels={**settings.channels, **channels})
    twice = select_rows(trace, np.repeat(np.arange(len(trace)), 2))
    second = np.arange(len(twice)) % 2
    session = np.where(twice.session == NO_SESSION, NO_SESSION, 2 * twice.session + second).astype(np.int32)
    names = [name for name in trace.session_names for _ in range(2)]
    rows = (run if len(settings.machines) == 1 else _run(alone, trace)).requests
    of_two = _run(both, replace(twice, session=session, session_names=names)).requests
    for name in rows.keys() - NAMES:
        for which in (0, 1):
            np.testing.assert_array_equal(of_two[name][which::2], rows[name], name)
    return True


def _is_closed(trace: Trace) -> bool:
    """Return True if arrivals follow finishes."""
    return bool((trace.think_ns != OPEN_LOOP).any())


def _run(settings: ClusterSettings, trace: Trace) -> Run:
    return Simulation(settings, trace, RunOptions(check="full")).run()
