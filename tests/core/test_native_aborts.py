"""Clients that abort: wherever their requests are, the core ends them as a model over the specification does.

Under an engine's own scheduler an abort is an answer cut short: all other requests fare alike.
"""

from bisect import bisect_left
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import CacheSettings, MovementSettings
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.serving.settings import HandoverSettings, ReplicaSettings, RouterSettings
from kvcache_sim.simulation import simulate
from kvcache_sim.workload.trace import NOT_GIVEN
from support.agreement import agree, columns
from support.clusters import BLOCK, cluster, varied
from support.drawn_settings import NATIVE, engines, replicas, trees
from support.examples import examples
from support.lookahead import assert_same_by_the_clock, packets_of
from support.pools import pools
from support.traces import only, random_trace, with_aborts

MS = 1_000_000
ABORTED = STATUSES.index("aborted")
_VARIANT = ("status", "first_token_ns", "prefill_ns", "fetch_ns", "num_tokens_actually_prefilled")


@examples(60)
@given(
    replica=replicas,
    cache=st.one_of(trees, trees, engines),
    blocks=st.sampled_from([70, 110, 400]),
    machines=st.sampled_from([1, 1, 2]),
    closed_loop=st.booleans(),
    seed=st.integers(1, 99),
)
def test_aborts_agree_on_one_tier(replica, cache, blocks, machines, closed_loop, seed):
    settings = varied(cluster((blocks,), machines), replica, cache=cache)
    trace = with_aborts(seed, closed_loop=closed_loop)
    if cache.semantics == "tree":
        agree(settings, trace)
    else:
        assert_same_by_the_clock(settings, trace)


def under_scheduler(scheduler, lookahead="none", blocks=400, **replica):
    """Return one machine under an engine's scheduler, and its cache."""
    replica = ReplicaSettings(512, 8, scheduler=scheduler, async_scheduling=lookahead, **replica)
    settings = cluster((blocks,))
    machine = replace(settings.machines[0], replica=replica)
    semantics = "tree" if scheduler == "kvsim" else scheduler
    cache = CacheSettings(block_size_tokens=BLOCK, semantics=semantics)
    return replace(settings, machines=(machine,), cache=cache)


@examples(30)
@given(
    scheduler=st.sampled_from(["vllm", "sglang"]),
    lookahead=st.sampled_from(["none", "length", "stop-token"]),
    order=st.sampled_from(["fcfs", "priority"]),
    blocks=st.sampled_from([35, 70, 400]),
    offset_ns=st.sampled_from([0, 2 * MS]),
    seed=st.integers(1, 99),
)
def test_engines_own_schedulers_abort_at_any_time(scheduler, lookahead, order, blocks, offset_ns, seed):
    order = order if scheduler == "vllm" else "fcfs"
    settings = under_scheduler(scheduler, lookahead, blocks, queue_order=order, client_offset_ns=offset_ns)
    assert_same_by_the_clock(settings, with_aborts(seed))


def without_sessions(seed, requests=20):
    """Return requests none of which is a turn of another."""
    trace = random_trace(seed, requests=requests, sessions=5)
    return replace(trace, session=np.full(requests, -1, np.int32), turn=np.zeros(requests, np.int32))


def of_others(run, request):
    """Return the rows of all requests but one."""
    others = np.flatnonzero(run.requests["request"] != request)
    return {name: [column[at] for at in others] for name, column in columns(run.requests).items()}


SCHEDULERS = [
    ("kvsim", "none"),
    ("kvsim", "length"),
    ("vllm", "none"),
    ("vllm", "stop-token"),
    ("sglang", "none"),
]


@pytest.mark.parametrize(("scheduler", "lookahead"), SCHEDULERS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_abort_is_an_answer_cut_short(scheduler, lookahead, seed):
    """To the others: of as many tokens as were out at the end of the step in which the client left."""
    settings, trace = under_scheduler(scheduler, lookahead), without_sessions(seed)
    whole = simulate(settings, trace).requests

    def with_answer(request, tokens):
        outputs = trace.output_tokens.copy()
        outputs[request] = tokens
        return simulate(settings, replace(trace, output_tokens=outputs))

    tried = 0
    for request in range(3, 20, 4):
        first_ns, finish_ns = int(whole["first_token_ns"][request]), int(whole["finish_ns"][request])
        if whole["status"][request] or trace.output_tokens[request] < 8:
            continue
        at_ns = (first_ns + finish_ns) // 2
        after = np.full(len(trace), NOT_GIVEN)
        after[request] = at_ns - trace.arrival_ns[request]
        aborted = simulate(settings, replace(trace, abort_after_ns=after))
        assert aborted.requests["status"][request] == ABORTED
        lengths = range(1, int(trace.output_tokens[request]) + 1)
        tokens = 1 + bisect_left(
            lengths, at_ns, key=lambda k: int(with_answer(request, k).requests["finish_ns"][request])
        )
        alike = [of_others(with_answer(request, tokens), request)]
        if scheduler == "sglang":  # the step may have been a prefill, which brings no token
            alike.append(of_others(with_answer(request, tokens - 1), request))
        assert of_others(aborted, request) in alike
        tried += 1
    assert tried


@pytest.mark.parametrize(("scheduler", "lookahead"), SCHEDULERS)
def test_who_leaves_at_once_might_not_have_come(scheduler, lookahead):
    settings, trace = under_scheduler(scheduler, lookahead), without_sessions(5, requests=40)
    for request in (7, 20, 33):
        after = np.full(len(trace), NOT_GIVEN)
        after[request] = 0
        aborted = simulate(settings, replace(trace, abort_after_ns=after))
        assert aborted.requests["status"][request] == ABORTED
        keep = [r for r in range(len(trace)) if r != request]
        alone = simulate(settings, only(trace, keep))
        rows, alone_rows = of_others(aborted, request), columns(alone.requests)
        for name in rows.keys() - {"request"}:
            assert rows[name] == alone_rows[name], name


def test_a_client_leaves_before_who_comes_at_its_instant():
    """Request 2 waits on machine 1: as it leaves, machine 1 has less to do for request 4 than machine 0 has."""
    settings = cluster((400,), 2)
    single = tuple(replace(m, replica=ReplicaSettings(512, 1)) for m in settings.machines)
    settings = replace(settings, machines=single, router=RouterSettings("least-loaded"))
    trace = random_trace(1, requests=5, sessions=3)
    trace = replace(
        trace,
        session=np.full(5, -1, np.int32),
        turn=np.zeros(5, np.int32),
        arrival_ns=np.array([0, 1, 2, 3, 100]) * MS,
        output_tokens=np.full_like(trace.output_tokens, 200),
    )
    chosen = []
    for late_ns in (-1, 0, 1):
        after = np.where(np.arange(5) == 2, 98 * MS + late_ns, NOT_GIVEN)
        chosen.append(simulate(settings, replace(trace, abort_after_ns=after)).requests["machine"].tolist())
    assert chosen == [[0, 1, 1, 0, 1], [0, 1, 1, 0, 1], [0, 1, 1, 0, 0]]


handovers = st.builds(
    HandoverSettings,
    path=st.sampled_from(["gpu-direct", "gpu-direct", "via-cpu"]),
    transfer=st.sampled_from(["at-end", "layer-by-layer"]),
    first_token=st.sampled_from(["decode", "prefill"]),
    router=st.sampled_from([*NATIVE, "random"]),
)


@examples(40)
@given(
    router=st.sampled_from(NATIVE),
    semantics=st.sampled_from(["tree", "tree", "vllm", "sglang"]),
    tiers=st.sampled_from([(35,), (110,), (90, 60, 200)]),
    machines=st.integers(1, 5),
    size=st.sampled_from([1, 7, 60]),
    seed=st.integers(1, 99),
)
def test_clients_leave_in_batches_of_arrivals(router, semantics, tiers, machines, size, seed):
    tiers = tiers if semantics == "tree" else tiers[:1]
    cache = CacheSettings(block_size_tokens=BLOCK, semantics=semantics)
    settings = replace(cluster(tiers, machines), router=RouterSettings(router), cache=cache)
    trace = with_aborts(seed, requests=60)
    with packets_of(size):
        assert_same_by_the_clock(settings, trace, batches=True)
    if semantics == "tree":
        agree(settings, trace)


@examples(20)
@given(
    handover=handovers.filter(lambda how: how.router != "random"),
    roles=st.sampled_from(["pd", "ppddd", "pbd"]),
    seed=st.integers(1, 99),
)
def test_clients_of_pools_leave_in_batches_too(handover, roles, seed):
    tiers = (80, 50) if handover.path == "via-cpu" else (80,)
    assert_same_by_the_clock(pools(roles, handover, tiers=tiers), with_aborts(seed), batches=True)


def test_requests_abort_in_every_state():
    """The traces above give requests up while they wait, load, compute and decode."""
    settings = cluster((90, 60, 400))
    settings = replace(settings, movement=MovementSettings(fetch="always", layer_pipelining=False))
    variants = set()
    for seed in range(3, 20, 4):
        table = agree(settings, with_aborts(seed, requests=120)).requests
        rows = zip(*(table[name].tolist() for name in _VARIANT), strict=True)
        for status, first_token_ns, prefill_ns, fetch_ns, left in rows:
            if status == ABORTED:
                loaded = "loading" if fetch_ns else "computing" if prefill_ns or left else "waiting"
                variants.add("decoding" if first_token_ns >= 0 else loaded)
    assert variants == {"waiting", "loading", "computing", "decoding"}
