"""A cluster of machines that serve each request for a given time: when requests arrive, and what is notified of their ends."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.engine import BOUNDARY, Engine
from kvcache_sim.serving.cluster import Cluster
from kvcache_sim.serving.handover.pools import Pools
from kvcache_sim.serving.router.contract import Promised, RouterView
from kvcache_sim.serving.router.in_core import DecodeClock
from kvcache_sim.serving.sequence import Status
from kvcache_sim.workload.trace import OPEN_LOOP, Trace
from support.examples import examples

MACHINES = 2


class Machine(SimpleNamespace):
    """Serves request r for ``service[r]`` ns; notes what it is asked for as (time, what, request, more)."""

    def when_closed(self, closed):
        self.closed = closed

    def arrive(self, arrival):
        now = self.engine.now_ns
        self.log.append((now, "arrives", arrival.request, arrival))
        self.engine.schedule(
            now + self.service[arrival.request], BOUNDARY, self.machine, self.closed, arrival.request
        )

    def abort(self, request):
        self.log.append((self.engine.now_ns, "aborted", request, self.machine))

    def prefetch(self, request, tokens, why):
        self.log.append((self.engine.now_ns, "prefetched", request, (self.machine, tokens, why)))

    def catch_up(self, until_ns):
        self.log.append((self.engine.now_ns, "ends steps", self.machine, until_ns))


def cluster_of(trace, service, lead_ns=None, fits=lambda request: True, instant=False, **views):
    """Return a cluster over such machines, request r on machine r % 2, and what they note."""
    engine, log, judged = Engine(MACHINES), [], []
    machines = [
        Machine(
            machine=n, engine=engine, log=log, service=service, records_all=False, prefetch_lead_ns=lead_ns,
            prefetches_sessions=lead_ns is not None, settings=SimpleNamespace(instant=instant),
            cache=SimpleNamespace(lower_semantics=None),
        )
        for n in range(MACHINES)
    ]  # fmt: skip
    pools = SimpleNamespace(
        views=SimpleNamespace(scrapes=views.get("scrapes"), when_closed=views.get("when_closed", [])),
        decoding=(),
        judged=judged,
        route=lambda arrival, router: machines[arrival.request % MACHINES],
        can_serve=lambda machine, prompt, total: (
            judged.append((machine.machine, prompt, total)),
            fits(prompt),
        )[1],
    )
    recorder = SimpleNamespace(
        close_unserved=lambda arrival, status, machine: log.append(
            (engine.now_ns, status, arrival.request, (machine, arrival.arrival_ns))
        ),
        log_milestone=lambda what, arrival, *rest: log.append((engine.now_ns, what, arrival.request, rest)),
        starts_again=lambda request, first_ns: log.append((engine.now_ns, "again", request, first_ns)),
    )
    digests = [
        SimpleNamespace(record=lambda *row, n=n: log.append((row[1], "digest", row[2], (n, row[0], row[3]))))
        for n in range(MACHINES)
    ]
    return Cluster(trace, machines, pools, SimpleNamespace(), recorder, digests), log


def trace_of(rows):
    """Requests of (session, arrival, think or None, more tokens than the turn before); no whole block."""
    tokens, turns, inputs, turn = {}, {}, [], []
    for session, _, _, more in rows:
        tokens[session] = tokens.get(session, 0) + more
        turns[session] = turns.get(session, -1) + 1
        inputs.append(tokens[session])
        turn.append(turns[session])
    count = len(rows)
    names = {}
    session = [names.setdefault(row[0], len(names)) for row in rows]
    return Trace(
        np.array([row[1] for row in rows], np.int64),
        np.array(inputs, np.int64),
        np.arange(count, dtype=np.int64),
        np.arange(count + 1, dtype=np.int64),
        np.arange(count, dtype=np.uint32),
        1 << 20,
        np.array(session, np.int32),
        np.array(turn, np.int32),
        np.array([OPEN_LOOP if row[2] is None else row[2] for row in rows], np.int64),
        np.arange(count) % 2 == 1,
    )


ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 6), st.none() | st.integers(0, 3), st.integers(1, 3)),
    min_size=1,
    max_size=7,
)
SERVICE = st.lists(st.integers(1, 4), min_size=7, max_size=7)


def times(rows, service):
    """Arrival and end of each request: a turn that thinks comes after its session's turn before it has left."""
    arrives, ends, before = [], [], {}
    for request, (session, at, think, _) in enumerate(rows):
        previous = before.get(session)
        if think is not None:
            at = think + (0 if previous is None else ends[previous])
        arrives.append(at)
        ends.append(at + service[request])
        before[session] = request
    return arrives, ends


def noted(log, what):
    return {request: (at, more) for at, kind, request, more in log if kind == what}


@examples(150)
@given(ROWS, SERVICE, st.none() | st.integers(0, 4))
@example([(0, 0, None, 1), (0, 5, None, 1)], [1] * 7, 2)
@example([(0, 0, None, 1), (0, 5, None, 1)], [1] * 7, 4)
@example([(0, 0, None, 1), (0, 5, None, 1)], [4] * 7, 4)
@example([(0, 0, None, 1), (0, 4, None, 1)], [4] * 7, 0)
@example([(0, 3, 2, 1), (0, 0, 0, 1), (0, 0, 3, 1)], [2] * 7, 1)
@example([(1, 2, None, 1), (0, 2, None, 1), (2, 2, None, 1)], [2] * 7, None)
def test_requests_arrive_when_they_should(rows, service, lead_ns):
    trace = trace_of(rows)
    notified, dropped = [], []
    cluster, log = cluster_of(trace, service, lead_ns, when_closed=[notified.append])
    now = cluster.engine
    cluster.drop_by(SimpleNamespace(closed=lambda *row: dropped.append((now.now_ns, *row))))
    sessions = [row[0] for row in rows]
    waits = any(row[2] is not None and row[0] in sessions[:n] for n, row in enumerate(rows))
    assert cluster.open_loop == (lead_ns is None and not waits)
    cluster.start()
    assert now.run()
    arrives, ends = times(rows, service)
    found = noted(log, "arrives")
    assert {request: at for request, (at, _) in found.items()} == dict(enumerate(arrives))
    for request, (at, arrival) in found.items():
        assert arrival.arrival_ns == at
        for name, column in (("prompt_num_tokens", "input_tokens"), ("output_tokens",) * 2, ("session",) * 2, ("turn",) * 2, ("is_conversational_turn",) * 2):  # fmt: skip
            assert getattr(arrival, name) == getattr(trace, column)[request]
        assert (arrival.priority, arrival.history_tokens) == (0, -1)
    assert noted(log, "digest") == {
        r: (at, (r % MACHINES, 1, int(trace.input_tokens[r]))) for r, at in enumerate(arrives)
    }
    assert sorted(notified) == list(range(len(rows)))
    assert sorted(dropped) == sorted((ends[r], r, r % MACHINES) for r in range(len(rows)))
    assert (cluster.arrived, cluster.closed, cluster.open_requests) == (len(rows), len(rows), 0)
    expected = {}
    for request, row in enumerate(rows):
        following = next((f for f in range(request + 1, len(rows)) if rows[f][0] == row[0]), None)
        if lead_ns is not None and following is not None and arrives[following] > ends[request]:
            at = max(arrives[following] - lead_ns, ends[request])
            expected[following] = (at, (request % MACHINES, int(trace.input_tokens[following]), "session"))
    assert noted(log, "prefetched") == expected
    if all(row[2] is None for row in rows):
        order = [request for _, kind, request, _ in log if kind == "arrives"]
        assert order == sorted(range(len(rows)), key=lambda r: (arrives[r], r))


@pytest.mark.parametrize(("machine", "first"), [(0, []), (1, [(2, "ends steps", 0, 3)])])
def test_machines_before_the_one_whose_step_ended_end_theirs_before_a_request_arrives(machine, first):
    rows = [(n, 0, None, 1) for n in range(2)] + [(machine, 0, 0, 1)]
    cluster, log = cluster_of(trace_of(rows), [2 if n == machine else 9 for n in range(2)] + [1])
    cluster.start()
    cluster.engine.run(until_ns=2)
    assert log[4:] == [*first, (2, "digest", 2, (0, 1, 2)), log[-1]]
    assert log[-1][:3] == (2, "arrives", 2)


PLAIN = [(0, 0, None, 5), (1, 2, None, 1), (2, 2, None, 5), (3, 4, None, 1)]


def test_a_request_that_fits_no_machine_is_closed_at_its_arrival():
    rows = [(0, 3, None, 5), (0, 9, 2, 1), (1, 3, None, 1)]
    cluster, log = cluster_of(trace_of(rows), [4] * 3, fits=lambda tokens: tokens < 5)
    cluster.start()
    assert cluster.engine.run()
    assert noted(log, Status.REJECTED) == {0: (3, (0, 3)), 1: (5, (1, 5))}
    assert noted(log, "arrives").keys() == {2}
    assert (cluster.arrived, cluster.closed) == (3, 3)
    cluster.reject(2, 1, 7)
    assert log[-1] == (7, Status.REJECTED, 2, (1, 7))


def test_machines_are_asked_for_prompt_and_answer_and_milestones_are_kept_on_those_that_record_all():
    cluster, log = cluster_of(trace_of(PLAIN), [1] * 4)
    cluster.replicas[1].records_all = True
    cluster.start()
    cluster.engine.run()
    assert cluster.pools.judged == [(0, 5, 5), (1, 1, 1), (0, 5, 6), (1, 1, 3)]
    assert noted(log, "arrive") == {1: (2, (1, 2)), 3: (4, (1, 4))}


def test_clients_leave_a_time_after_their_arrival():
    trace = replace(trace_of(PLAIN), abort_after_ns=np.array([0, 3, -1, 5]))
    cluster, log = cluster_of(trace, [9] * 4, fits=lambda tokens: True)
    for refused in (cluster.hold_at, cluster.change_members_by):
        with pytest.raises(UsageError, match="requests are given up"):
            refused(SimpleNamespace())
    cluster.start()
    assert cluster.engine.run()
    assert noted(log, "aborted") == {0: (0, 0), 1: (5, 1), 3: (9, 1)}


class Gate(list):
    """Holds requests until they are let in."""

    def open_to(self, admit):
        self.admit = admit

    def arrive(self, request):
        self.append(request)

    def closed(self):
        self.left = getattr(self, "left", 0) + 1


def test_requests_wait_at_a_gate_and_keep_their_first_arrival():
    trace = replace(trace_of(PLAIN), priority=np.array([4, 5, 6, 7]), history_tokens=np.array([3, -1, 2, 1]))
    expected = []
    scrapes = SimpleNamespace(expect=expected.append, for_arrivals_only=lambda: expected.append("alone"))
    cluster, log = cluster_of(trace, [3] * 4, scrapes=scrapes)
    gate = Gate()
    cluster.hold_at(gate)
    cluster.start()
    cluster.engine.run(until_ns=3)
    assert (list(gate), cluster.open_requests, cluster.arrived, cluster.open_loop) == ([0, 1, 2], 0, 3, False)
    gate.admit(gate.pop())
    assert cluster.open_requests == 1
    assert (log[0], log[-1][:3]) == ((2, "again", 2, 2), (2, "arrives", 2))
    arrival = log[-1][3]
    assert (arrival.arrival_ns, arrival.priority, arrival.history_tokens) == (2, 6, 2)
    cluster.engine.run()
    assert (gate.left, cluster.closed, cluster.open_requests) == (1, 1, 0)
    cluster.fail(0)
    assert log[-1] == (5, Status.FAILED, 0, (-1, 0))
    assert (expected[0], sorted(expected[1:])) == ("alone", [0, 2, 2, 2, 4])


def test_members_are_notified_of_each_request_and_of_the_last():
    cluster, log = cluster_of(trace_of(PLAIN), [1] * 4)
    notified = []
    membership = SimpleNamespace(
        start=lambda own: notified.append(own is cluster),
        choose=lambda arrival: None if arrival.request == 1 else cluster.replicas[0],
        closed=lambda request, last: notified.append((request, last)),
    )
    assert cluster.is_plain
    cluster.change_members_by(membership)
    dropped = []
    cluster.drop_by(SimpleNamespace(closed=lambda *row: dropped.append(row)))
    assert not cluster.is_plain
    cluster.start()
    cluster.engine.run()
    assert [request for _, kind, request, _ in log if kind == "arrives"] == [0, 2, 3]
    cluster.fail(1)
    assert notified == [True, (0, False), (2, False), (3, False), (1, True)]
    assert log[-1] == (5, Status.FAILED, 1, (-1, 2))
    cluster.engine.run()
    assert dropped == [(0, 0), (2, 0), (3, 0)]


def test_windows_continue_a_trace_with_the_requests_that_are_open():
    first, second = (
        replace(trace, abort_after_ns=np.array(after))
        for trace, after in (
            (trace_of(PLAIN[:2]), [-1, 1]),
            (trace_of([(0, 5, None, 2), (1, 5, None, 3), (2, 8, None, 4)]), [3, -1, -1]),
        )
    )
    cluster, log = cluster_of(first, [9, 1, 2, 2, 2])
    asked, windows = [], [second]

    def read_on(still_open):
        asked.append((cluster.engine.now_ns, still_open))
        return windows.pop() if windows else None

    cluster.read_on(read_on)
    cluster.start()
    assert cluster.engine.run()
    assert {r: at for r, (at, _) in noted(log, "arrives").items()} == {0: 0, 1: 2, 2: 5, 3: 5, 4: 8}
    assert [arrival.prompt_num_tokens for _, kind, _, arrival in log if kind == "arrives"] == [5, 1, 2, 3, 4]
    assert asked == [(2, [0, 1]), (8, [0, 4])]
    assert noted(log, "aborted") == {1: (3, 1), 2: (8, 0)}


def test_requests_that_are_fed_can_be_aborted_once_they_are_sent():
    cluster, log = cluster_of(trace_of(PLAIN[:1]), [2] * 4)
    cluster.start()
    cluster.engine.run()
    cluster.abort(0)
    cluster.feed(trace_of([(0, 6, None, 2), (1, 5, None, 3)]))
    cluster.abort(1)
    cluster.engine.run(until_ns=5)
    cluster.abort(1)
    cluster.abort(2)
    assert noted(log, "aborted") == {2: (5, 0)}
    cluster.engine.run()
    assert {r: at for r, (at, _) in noted(log, "arrives").items()} == {0: 0, 1: 6, 2: 5}
    cluster.abort(1)
    assert len(noted(log, "aborted")) == 1


def test_an_instant_run_goes_through_its_requests_in_file_order():
    rows = [(0, 6, None, 5), (1, 2, None, 1), (0, 2, 3, 5), (3, 9, None, 9)]
    cluster, log = cluster_of(trace_of(rows), [1] * 4, instant=True, fits=lambda tokens: tokens != 1)
    assert not cluster.open_loop
    cluster.start()
    assert cluster.engine.run()
    assert [(at, request) for at, kind, request, _ in log if kind in ("arrives", Status.REJECTED)] == [
        (6, 0),
        (7, 1),
        (7, 2),
        (9, 3),
    ]


def test_a_router_sees_what_a_prompt_lacks_on_each_machine():
    """Whole blocks are found, so more tokens may be than a prompt has."""
    view = SimpleNamespace(block_size_tokens=16)
    arrival = SimpleNamespace(prompt_num_tokens=40)
    assert RouterView.new_prefill_tokens(view, arrival, [0, 1, 2, 3, 4]) == [40, 24, 8, 0, 0]


@examples(150)
@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 12), st.none() | st.integers(1, 12)), min_size=1, max_size=4
    ),
    st.integers(1, 12),
    st.integers(0, 12),
)
@example([(True, 12, None), (False, 9, None)], 5, 4)
@example([(True, 12, None), (False, 9, None)], 5, 5)
@example([(True, 7, None), (False, 3, None)], 7, 0)
@example([(False, 12, 6)], 6, 0)
def test_a_request_fits_where_its_prompt_does_and_all_of_it_where_it_is_decoded(machines, prompt, answer):
    """Machines that hand their prompts over or not, with the tokens they hold and their context."""
    replicas = [
        SimpleNamespace(
            machine=n, settings=SimpleNamespace(max_model_len=context), can_ever_hold=lambda tokens, most=holds: tokens <= most
        )
        for n, (_, holds, context) in enumerate(machines)
    ]  # fmt: skip
    pools = Pools.__new__(Pools)
    pools._replicas, pools._sends = replicas, [sends for sends, *_ in machines]
    pools.decoding = [own for own, (sends, *_) in zip(replicas, machines, strict=True) if not sends]
    decoded = max((holds for sends, holds, _ in machines if not sends), default=0)
    bounds = pools.most_tokens(40)
    for own, (sends, holds, context), (most_prompt, most) in zip(replicas, machines, bounds, strict=True):
        fits = prompt < (99 if context is None else context) and prompt <= holds
        fits &= (answer == 0 or prompt + answer <= decoded) if sends else prompt + answer <= holds
        assert pools.can_serve(own, prompt, prompt + answer) is fits
        assert answer == 0 or fits is (prompt <= most_prompt and prompt + answer <= most)


def test_promises_count_until_their_machine_is_asked_for():
    own = Promised(3)
    for request, machine, tokens in ((4, 1, 30), (5, 1, 7), (6, 2, 9)):
        own.add(SimpleNamespace(request=request, prompt_num_tokens=tokens), machine)
    assert (own.requests, own.tokens) == ([0, 2, 1], [0, 37, 9])
    assert [own.machine_of(request) for request in (4, 4, 8)] == [1, None, None]
    own.closed(6)
    assert (own.requests, own.tokens) == ([0, 1, 0], [0, 7, 0])


def test_decode_machines_are_read_after_this_instant_and_at_an_arrival_before_it():
    clock = DecodeClock(SimpleNamespace(now_ns=7))
    assert clock.now_ns == 8
    with clock.arriving():
        assert clock.now_ns == 7
    assert clock.now_ns == 8
