"""Plug-ins of every kind in the core: they see and decide what the built-in policy of the same rule does."""

import signal
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, given
from hypothesis import strategies as st
from kvcache_sim.base.errors import KvsimError
from kvcache_sim.metrics.run import Run
from kvcache_sim.policies.plugins.contract import PolicyViolation
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.simulation import RunOptions, Simulation, simulate
from support import own_plugins
from support.any_cluster import clusters
from support.clusters import cluster
from support.examples import examples
from support.traces import random_trace


@st.composite
def plugin(draw: Any, name: str, hows: list[str], **more: Any) -> str:
    """Return the name of a plug-in of tests/support/own_plugins.py."""
    arguments = {"how": draw(st.sampled_from(hows)), "seed": draw(st.integers(0, 99)), **more}
    return f"support.own_plugins:{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


@st.composite
def queued(draw: Any, settings: ClusterSettings) -> ClusterSettings:
    machines = [
        replace(
            machine, replica=replace(machine.replica, queue_order=draw(plugin("Queue", own_plugins.QUEUES)))
        )
        for machine in settings.machines
    ]
    return replace(settings, machines=tuple(machines))


@st.composite
def admitted(draw: Any, settings: ClusterSettings) -> ClusterSettings:
    name = draw(plugin("Admission", own_plugins.CUTS))
    return replace(settings, cache=replace(settings.cache, admission=name, discard_on_finish=False))


@st.composite
def fetched(draw: Any, settings: ClusterSettings) -> ClusterSettings:
    name = draw(plugin("Fetch", own_plugins.FETCHES))
    return replace(settings, movement=replace(settings.movement, fetch=name))


@st.composite
def prefetched(draw: Any, settings: ClusterSettings) -> ClusterSettings:
    occasions = draw(st.sampled_from([("queued",), ("session",), ("queued", "session"), ()]))
    name = draw(plugin("Prefetch", own_plugins.CUTS, occasions=occasions))
    return replace(settings, movement=replace(settings.movement, prefetch=name))


@st.composite
def chosen(draw: Any, settings: ClusterSettings) -> ClusterSettings:
    """Put some edges of each machine on several channels of other rates."""
    channels, machines = dict(settings.channels), []
    for number, machine in enumerate(settings.machines):
        rails = {}
        for edge, first in machine.edge_channels.items():
            if more := draw(st.integers(0, 2)):
                names = [f"{edge} {number} {n}" for n in range(more)]
                rate = draw(st.sampled_from([10**8, 10**9, 7 * 10**9]))
                channels |= {
                    name: replace(channels[first], name=name, bandwidth_bytes_per_s=rate) for name in names
                }
                rails[edge] = (first, *names)
        machines.append(replace(machine, edge_rails=rails))
    movement = replace(settings.movement, channel_choice=draw(plugin("Channel", own_plugins.CHANNELS)))
    return replace(settings, machines=tuple(machines), channels=channels, movement=movement)


@st.composite
def written(draw: Any, settings: ClusterSettings) -> ClusterSettings:
    flags = tuple(draw(st.booleans()) for _ in range(3))
    tiers = draw(st.sampled_from([("gpu",), ("cpu",), ("gpu", "cpu")]))
    write = {name: draw(plugin("Write", own_plugins.WRITES, flags=flags)) for name in tiers}
    movement = settings.movement
    return replace(settings, movement=replace(movement, write={**movement.write, **write}))


KINDS = {
    "queue": queued,
    "admission": admitted,
    "fetch": fetched,
    "prefetch": prefetched,
    "channel": chosen,
    "write": written,
}


def seen_by(settings: ClusterSettings, seed: int) -> tuple[Run, list[Any]]:
    """Return a run, with the inputs and answers of its plug-ins."""
    own_plugins.SEEN.clear()
    run = Simulation(settings, random_trace(seed, requests=40, sessions=4), RunOptions(check="full")).run()
    assert run.engine.name == "native"
    return run, list(own_plugins.SEEN)


@pytest.mark.parametrize("kind", KINDS)
@examples(10, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=st.data(), seed=st.integers(0, 10**6))
def test_any_answers_break_no_invariant_and_another_run_sees_the_same(kind, data, seed):
    settings = data.draw(clusters())
    kinds = [kind, *data.draw(st.lists(st.sampled_from(sorted(KINDS)), max_size=2))]
    for one in dict.fromkeys(kinds):
        settings = data.draw(KINDS[one](settings))
    run, saw = seen_by(settings, seed)
    assume(any(one.startswith(kind) for one, *_ in saw))
    again, also_saw = seen_by(settings, seed)
    assert saw == also_saw
    assert (run.digest_events, run.digest_results) == (again.digest_events, again.digest_results)
    calls = [{(use.kind, use.name): use.calls for use in run.plugins} for run in (run, again)]
    assert calls[0] == calls[1]
    event(f"{kind} with {len(kinds)}")


def repeated(settings: ClusterSettings, kind: str) -> ClusterSettings:
    """Return a cluster whose policies of a kind are plug-ins with the same rules; the same where it has none."""

    def named(name: str, how: str, **more: Any) -> str:
        return (
            f"support.own_plugins:{name}({', '.join(f'{k}={v!r}' for k, v in {'how': how, **more}.items())})"
        )

    def written(policy: str) -> str:
        how = {"selective": "selected", "back": "never"}.get(policy, "through")
        flags = (policy != "selective", how == "through", policy == "through-sync")
        return named("Write", how, flags=flags)

    movement, cache = settings.movement, settings.cache
    if kind == "queue":
        orders = [named("Queue", machine.replica.queue_order) for machine in settings.machines]
        machines = [
            replace(machine, replica=replace(machine.replica, queue_order=order))
            for machine, order in zip(settings.machines, orders, strict=True)
        ]
        return replace(settings, machines=tuple(machines))
    if kind == "admission":
        name = named("Admission", {"all": "most"}.get(cache.admission, cache.admission))
        return replace(settings, cache=replace(cache, admission=name))
    if kind == "fetch" and movement.fetch in own_plugins.PLANS:
        movement = replace(movement, fetch=named("Fetch", movement.fetch))
    if kind == "prefetch" and movement.prefetch != "none":
        movement = replace(movement, prefetch=named("Prefetch", "most", occasions=(movement.prefetch,)))
    if kind == "channel":
        how = {"assigned": "least"}.get(movement.channel_choice, movement.channel_choice)
        movement = replace(movement, channel_choice=named("Channel", how))
    if kind == "write":
        movement = replace(movement, write={edge: written(own) for edge, own in movement.write.items()})
    return replace(settings, movement=movement)


@st.composite
def with_rails(draw: Any) -> ClusterSettings:
    """Return any cluster, whose edges may have several channels."""
    settings = draw(chosen(draw(clusters())))
    choice = draw(st.sampled_from(["assigned", "emptiest"]))
    return replace(settings, movement=replace(settings.movement, channel_choice=choice))


@pytest.mark.parametrize("kind", KINDS)
@examples(15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(settings=with_rails(), also=st.sets(st.sampled_from(sorted(KINDS))), seed=st.integers(0, 10**6))
def test_a_plugin_with_a_built_in_policys_rule_decides_as_that_policy(kind, settings, also, seed):
    """A plug-in's inputs and answers are right if the rule of a policy gives the policy's run.

    Routers estimate loads of all that is found under a plug-in, which they do not call.
    """
    hosted, kinds = settings, {kind, *also}
    if "prefill-time" in (settings.router.policy, settings.handover.router):
        kinds -= set() if settings.movement.fetch in ("always", "wait") else {"fetch"}
    for one in kinds:
        hosted = repeated(hosted, one)
    trace = random_trace(seed, requests=40, sessions=4)
    run, own = (simulate(s, trace, options=RunOptions(check="full")) for s in (hosted, settings))
    calls = {use.kind: use.calls for use in run.plugins}
    assume(any(calls.values()))
    assert (run.digest_events, run.digest_results) == (own.digest_events, own.digest_results)
    # a view of a fetch opens the channel that it would take
    counted = [{name: n for name, n in one.counters.items() if n} for one in (run, own)]
    assert counted[0] == counted[1]
    event(f"{kind}: {sorted(one for one, of_kind in calls.items() if of_kind)}")


def with_one(kind: str) -> ClusterSettings:
    """Return a small cluster with one plug-in of a kind."""
    settings = cluster((60, 60, 200))
    movement, machine = settings.movement, settings.machines[0]
    if kind == "queue":
        replica = replace(machine.replica, queue_order="support.own_plugins:Queue(how='newest')")
        return replace(settings, machines=(replace(machine, replica=replica),))
    if kind == "admission":
        return replace(
            settings, cache=replace(settings.cache, admission="support.own_plugins:Admission(how='half')")
        )
    if kind == "channel":
        first = machine.edge_channels["cpu->gpu"]
        channels = {**settings.channels, "other": replace(settings.channels[first], name="other")}
        machine = replace(machine, edge_rails={"cpu->gpu": (first, "other")})
        movement = replace(movement, channel_choice="support.own_plugins:Channel(how='emptiest')")
        return replace(settings, machines=(machine,), channels=channels, movement=movement)
    names = {
        "fetch": {"fetch": "support.own_plugins:Fetch(how='half')"},
        "prefetch": {"prefetch": "support.own_plugins:Prefetch(how='half')"},
        "write": {"write": {"gpu": "support.own_plugins:Write(how='through')", "cpu": "back"}},
    }
    return replace(settings, movement=replace(movement, **names[kind]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", [1, 4])
def test_an_exception_ends_the_run_at_that_call(kind, at):
    own_plugins.FAILS_AT[0] = at
    try:
        with pytest.raises(PolicyViolation, match=f"raised RuntimeError: call {at}") as raised:
            seen_by(with_one(kind), 3)
    finally:
        own_plugins.FAILS_AT[0] = 0
    assert len(own_plugins.SEEN) == at
    assert "own_plugins.py:" in str(raised.value)


def test_the_store_of_a_write_policy_is_empty_outside_its_calls(monkeypatch):
    stores = []
    monkeypatch.setattr(own_plugins.Write, "used", lambda self, store, lease, now_ns: stores.append(store))
    seen_by(with_one("write"), 3)
    assert {tuple(store.occupancy(0)) for store in stores} == {(0, 0, 0, 0, 0)}
    with pytest.raises(KvsimError, match="no such lease"):
        stores[0].depth(0)


def test_a_signal_ends_a_long_call_of_the_core():
    def end(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    trace = random_trace(1, requests=20_000, sessions=500)
    core = Simulation(cluster((3000,)), trace, RunOptions()).replicas[0].core
    for request in range(len(trace)):
        tokens = int(trace.input_tokens[request]), int(trace.output_tokens[request]), 0, -1
        core.arrive_in_queue(request, tokens, (request, 0, False, 0), 0)
    before = signal.signal(signal.SIGALRM, end)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(KeyboardInterrupt):
            core.run(1 << 62)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    waiting, *_ = core.counts()
    assert 0 < waiting < len(trace)
