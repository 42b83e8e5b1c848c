"""The machines of the core as Python drives them, with a core that answers what a test says."""

from types import SimpleNamespace

import numpy as np
import pytest
from kvcache_sim.engine import ARRIVAL, BOUNDARY, Engine
from kvcache_sim.serving import native_cluster
from kvcache_sim.serving.native_arrivals import FrontDoor
from kvcache_sim.serving.native_cluster import NativeCluster
from kvcache_sim.serving.sequence import Arrival


class Scripted:
    """Answers calls from lists by name, and notes each call in a common list."""

    def __init__(self, calls: list, who: str = "", **answers):
        self._calls, self._who, self._answers = calls, who, answers
        self.pool_hit_blocks = answers.get("pool_hit_blocks", 0)
        self.rows_at_a_time = answers.get("rows_at_a_time", 0)

    def __getattr__(self, name):
        def call(*given):
            self._calls.append((self._who + name, *given))
            answers = self._answers.get(name)
            return answers.pop(0) if answers else None

        return call


def cluster(monkeypatch, machines: int = 4, choose=None, rows: int = 3, **core):
    """Return a cluster, its engine, and the calls to its core, replicas (``0.``), recorder and door."""
    calls: list = []
    monkeypatch.setattr(
        native_cluster._core, "Cluster", lambda *given: made.append(given) or Scripted(calls, **core)
    )
    made: list = []
    engine = Engine(machines)
    replicas = [Scripted(calls, f"{machine}.") for machine in range(machines)]
    for machine, replica in enumerate(replicas):
        replica.engine, replica.core = engine, SimpleNamespace(number=machine, pool_hit_blocks=machine + 1)
    own = NativeCluster(replicas, choose, None, Scripted(calls, rows_at_a_time=rows))
    assert [given[2] for given in made] == [choose is None]
    assert [call[0] for call in calls] == [f"{machine}.share_time" for machine in range(machines)]
    calls.clear()
    return own, engine, calls, replicas


def test_the_next_event_is_queued_once(monkeypatch):
    """The same event again changes nothing; another one replaces it, and none leaves none."""
    answers = [(5, BOUNDARY, 0), (5, BOUNDARY, 0), (3, ARRIVAL, 1), (9, BOUNDARY, 2), None, (4, BOUNDARY, 3)]
    own, engine, calls, _ = cluster(monkeypatch, woken=answers, run=[(None, None, None, None)])
    for n, alive in enumerate([True, True, True, True, False, True]):
        own.woken(n)
        assert engine.idle is not alive
    assert engine.run()
    assert [call for call in calls if call[0] == "run"] == [("run", 4, 4)]
    assert [call[0] for call in calls if call[0] not in ("run", "woken")] == ["3.check"]


@pytest.mark.parametrize("lookahead", [False, True])
@pytest.mark.parametrize("together", [None, 1, 2])
@pytest.mark.parametrize("priority", [BOUNDARY, ARRIVAL])
@pytest.mark.parametrize("then", [12, 14, 15])
def test_an_event_asks_and_notes_in_order(monkeypatch, lookahead, together, priority, then):
    """A hand-over is chosen and the core continues until its next event is at or after the others'."""
    asked = []

    def choose(machine, arrival):
        asked.append((machine, arrival))
        return 1, [], 7

    question = (2, (31, 400), (90, 8), ("session", 5, 6, "tail"))
    answers = [(None, question, [(3, 30), (1, 29)], b"first"), ((20, ARRIVAL, 1), None, None, b"second")]
    own, engine, calls, replicas = cluster(
        monkeypatch, choose=choose, woken=[(10, priority, 2)], run=answers, assign=[(then, BOUNDARY, 1)]
    )
    if lookahead:
        own.enable_lookahead()
    engine.schedule(15, ARRIVAL, 0, lambda _: None)
    if together is not None:
        own.step_together(together, [4], [([1], [2])])
    together = together or 1
    own.notify_prefilled_of(replicas[1])
    own.report_events_to(replicas[3])
    calls.clear()
    own.woken(2)
    engine.run(until_ns=19)
    assert asked == [(2, Arrival(31, 400, 90, 8, "session", 5, 6, 0, "tail"))]
    until, continues = 15 if lookahead else 10, lookahead and then < 15
    first = [("woken", 2), ("run", 10, until), ("add_events", b"first", 10)]
    first += [("3.notify_closed", (30,)), ("1.notify_closed", (29,)), ("assign", 1, [], 7)]
    again = [("run", 10, 15), ("add_events", b"second", 10)]
    ended = [("1.notify_prefilled",), ("3.event_ended",)]
    checks = [(f"{machine}.check",) for machine in range(2, 2 + together)] if priority == BOUNDARY else []
    later = [
        ("run", then, then),
        ("add_events", b"second", then),
        *ended,
        ("1.check",),
        *[("2.check",)] * (together - 1),
    ]
    assert calls == [*first, *(again if continues else []), *ended, *checks, *([] if continues else later)]


def test_requests_are_fed_when_the_core_has_none_left(monkeypatch):
    """The door's rejections come first; rows leave in parts of three or more."""
    answers = [
        ((6, ARRIVAL, 1), None, [(0, 8), (1, 9)], None),
        ((6, ARRIVAL, 1), None, None, None),
        ((9, ARRIVAL, 1), None, [(0, 7)], None),
    ]
    rejected = [([(4, 0), (5, 1)], True), ([], True), ([], False)]
    own, engine, calls, _ = cluster(
        monkeypatch,
        2,
        run=answers,
        take_rejected=rejected,
        feed=[(5, ARRIVAL, 0), (6, ARRIVAL, 0)],
        take_rows=[b"rows"],
    )
    door = Scripted(calls, "door ", next=[b"one", b"two", None])
    own.open(door, "rule", [0, 1], ([2], [3]))
    assert calls == [("open", "rule", [0, 1], [2], [3]), ("door next",), ("feed", b"one")]
    calls.clear()
    own.enable_lookahead()
    engine.schedule(8, ARRIVAL, 0, lambda _: None)
    engine.run(until_ns=8)
    assert calls == [
        ("run", 5, 8), ("door closed", [8, 9]), ("take_rejected",), ("door rejected", 4, 0), ("door rejected", 5, 1),
        ("door next",), ("feed", b"two"),
        ("run", 5, 8), ("take_rejected",), ("door next",),
        ("run", 6, 8), ("take_rows",), ("add_rows", b"rows"), ("door closed", [7]), ("take_rejected",),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "given", "sent"),
    [
        ("enqueue", (1, 6), (1, 6, 7)),
        ("prefetch", (1, 30, 64), (1, (30, 64), 7)),
        ("abort", (1, 30), (1, 30, 7)),
    ],
)
def test_news_of_a_call(monkeypatch, call, given, sent):
    news = [((11, BOUNDARY, 1), [(1, 30)], b"events"), (None, None, None)]
    own, engine, calls, replicas = cluster(monkeypatch, longest=[19], **{call: news})
    own.report_events_to(replicas[0])
    engine.now_ns = 7
    getattr(own, call)(*given)
    assert not engine.idle
    getattr(own, call)(*given)
    assert engine.idle
    written = [("add_events", b"events", 7), ("1.notify_closed", (30,)), ("0.event_ended",)]
    assert calls == [(call, *sent), *written, (call, *sent), ("0.event_ended",)]
    assert own.longest(1, 30, (4, 9)) == 19
    assert calls[-1] == ("longest", (1, (30, 4, 9)), 7)


def test_a_shared_pool_counts_the_hits_of_all_machines(monkeypatch):
    own, _, calls, _ = cluster(monkeypatch)
    own.count_pool()
    own._pool = Scripted(calls, "pool ")
    own.count_pool()
    node, core = Scripted(calls, "node "), Scripted(calls, pool_counts=[(5, 6, 7, 800)])
    pool = native_cluster.SharedPool.__new__(native_cluster.SharedPool)
    pool._node, pool.core = node, core
    pool.count(10)
    assert calls == [("pool count", 1 + 2 + 3 + 4), ("pool_counts",), ("node count", (5, 6, 7, 10), 800)]
    own.decode_by("rule", [(2, 90), (3, 80)], "between")
    assert calls[-1] == ("decode_by", "rule", [2, 3], [90, 80], "between")


@pytest.mark.parametrize("windows", [False, True])
def test_requests_that_have_left_are_open_no_longer(windows):
    """Open requests are asked for only where a trace is read in windows: their ids are kept."""
    calls: list = []
    door = FrontDoor.__new__(FrontDoor)
    door._cluster, door._open, door._first, door._at_ns = (
        Scripted(calls),
        {4, 5, 6, 7},
        3,
        np.array([10, 20, 30, 40]),
    )
    kept: list = []
    window = type("Window", (), {"arrival_ns": np.array([50, 60]), "__len__": lambda self: 2})()
    door._trace = [0, 0, 0, 0]
    door._read_on = (
        (lambda ids: kept.append(ids) or (window if len(kept) == 1 else None)) if windows else None
    )
    door.closed([4, 6])
    door.rejected(5, 1)
    assert calls == [("count", 0, 2), ("reject", 5, 1, 30)]
    assert door._open == ({7} if windows else {4, 5, 6, 7})
    assert door._next_window() is windows
    if windows:
        assert kept == [[7]]
        assert (door._first, door._position, door._order.tolist()) == (7, 0, [7, 8])
        assert calls[2] == ("look_at", window, 7, window.arrival_ns)
        assert not door._next_window()
