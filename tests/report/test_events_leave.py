"""Events written during a run equal those that a run keeps in memory."""

import struct
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kvcache_sim.base.errors import InvariantError
from kvcache_sim.metrics.columns import EVENT_COLUMNS, OUTCOMES, REQUEST_COLUMNS, STATUSES
from kvcache_sim.metrics.event_log import EventLog, EventRow
from kvcache_sim.metrics.parts import Parts, arrays_of, cut, joined, rows_of
from kvcache_sim.metrics.prefix_cache import outcomes_of
from kvcache_sim.metrics.recorder import RunRecorder
from kvcache_sim.metrics.run import CodedText
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.serving.sequence import Arrival, Status
from kvcache_sim.simulation import RunOptions
from support.examples import examples

ROWS = 100_000


def fill(log: EventLog) -> EventLog:
    for row in range(ROWS):
        log.add("prefix_cache_event", OUTCOMES[row % 3], EventRow(row // 4, 0, 0, row, 7, 0, 9))
    return log


def test_rows_that_leave_and_rows_that_stay_are_all_rows():
    whole = fill(EventLog()).columns()
    left: list = []
    log = EventLog()
    log.leave_to(left.append)
    rest = fill(log).columns()
    assert len(left) > 1
    parts = Parts(tuple(EVENT_COLUMNS), lambda: iter([*left, *rest.parts()]))
    for name in EVENT_COLUMNS:
        mine, all_rows = parts[name], whole[name]
        if isinstance(all_rows, CodedText):
            assert isinstance(mine, CodedText)
            assert mine.words == all_rows.words
            mine, all_rows = mine.codes, all_rows.codes
        assert np.array_equal(mine, all_rows), name
    counted = outcomes_of(rest)
    assert {o: log.left_outcomes[o] + counted.get(o, 0) for o in OUTCOMES[:3]} == outcomes_of(whole)


def backwards(log: EventLog) -> None:
    for row in range(ROWS, 0, -1):
        log.add("prefill_start", "", EventRow(row, 0, 0, 0))


def test_a_row_before_one_that_has_left_is_refused():
    log = EventLog()
    log.leave_to(lambda part: None)
    with pytest.raises(InvariantError, match="I5"):
        backwards(log)


def logged(log: EventLog) -> list[tuple[int, int, int]]:
    """Return (time, machine, number) of the rows that are still with a log."""
    names = ("time_ns", "machine", "request")
    parts = log.columns().parts()
    return [row for part in parts for row in zip(*(part[name].tolist() for name in names), strict=True)]


@examples(60)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=4)),
        max_size=12,
    )
)
@example([(0, [(0, 1), (0, 0)])])
@example([(0, [(1, 0), (0, 1)]), (1, [(0, 0)])])
def test_rows_are_in_time_order_by_machine_and_then_as_they_were_logged(drawn):
    """Machines report at a time what they did then or, with lookahead, will do later."""
    expected, now, log = [], 0, EventLog()
    for later, rows in drawn:
        now += later
        packed = b""
        for after_ns, machine in rows:
            expected.append((now + after_ns, machine, len(expected)))
            packed += struct.pack("9q", now + after_ns, 0, machine, 0, len(expected) - 1, 0, 0, 0, 0)
        log.extend(packed, now)
    assert logged(log) == sorted(expected)


@pytest.mark.parametrize("seed", range(3))
def test_rows_leave_in_that_order_and_those_of_later_times_stay(seed):
    draw, log, left, now = np.random.default_rng(seed), EventLog(), [], 0
    log.leave_to(left.append)
    rows = np.zeros((6, 20_000, 9), np.int64)
    rows[:, :, 4] = np.arange(rows[:, :, 4].size).reshape(6, -1)
    for own in rows:
        now += int(draw.integers(0, 3))
        own[:, 0], own[:, 2] = now + draw.integers(0, 4, len(own)), draw.integers(0, 3, len(own))
        log.extend(own.tobytes(), now)
    assert len(left) > 1
    parts = [*left, *log.columns().parts()]
    found = np.stack(
        [np.concatenate([part[name] for part in parts]) for name in ("time_ns", "machine", "request")]
    )
    whole = rows.reshape(-1, 9)[:, [0, 2, 4]]
    assert np.array_equal(found.T, whole[np.lexsort(whole.T[::-1])])


def test_a_window_records_what_begins_in_it():
    """Its start belongs to it, its end does not; what every run records is there whatever the window."""
    text = """cache: {block_size: 16}
workload: {kind: conversational, requests: 40, arrivals: {process: poisson, rate_per_s: 9}, block_size: 16}
tiers: {gpu: {capacity: 200 blocks}, cpu: {capacity: 900 blocks}}
cluster: {machines: 2}
"""
    scenario = scenario_from_text(text, "s", Path())
    trace = read_requests(scenario)

    def recorded(window):
        events = execute(scenario, trace, RunOptions(record_window_ns=window)).run.events
        columns = [
            column.codes if isinstance(column, CodedText) else column
            for column in map(events.__getitem__, EVENT_COLUMNS)
        ]
        kinds = events["kind"]
        return Counter(zip(*(column.tolist() for column in columns), strict=True)), kinds.words

    always, _ = recorded(None)
    whole, kinds = recorded((0, 1 << 62))
    optional = whole - always
    at, kind = (list(EVENT_COLUMNS).index(name) for name in ("time_ns", "kind"))
    seen = {}
    for row in sorted(optional):
        seen.setdefault(kinds[row[kind]], []).append(row[at])
    assert {"arrive", "admit", "transfer", "finish"} <= seen.keys()
    for times in seen.values():
        start, end = times[len(times) // 3], times[2 * len(times) // 3]
        if start < end:
            found, _ = recorded((start, end))
            assert found == always + Counter(
                {row: n for row, n in optional.items() if start <= row[at] < end}
            )


def test_columns_in_pieces_by_hand():
    first, second = CodedText(np.array([0, 1]), ("a", "b")), CodedText(np.array([2, 0]), ("a", "b", "c"))
    text = joined([first, second])
    assert (text.codes.tolist(), text.words) == ([0, 1, 2, 0], ("a", "b", "c"))
    numbers = joined([np.array([1, 2]), np.array([3])])
    assert numbers.tolist() == [1, 2, 3]
    assert joined([first]) is first
    assert (rows_of(text), rows_of(numbers)) == (4, 3)
    assert (cut(text, 1, 3).codes.tolist(), cut(numbers, 1, 3).tolist()) == ([1, 2], [2, 3])
    assert list(arrays_of({"text": text, "n": numbers})) == ["n"]


ARRIVAL = Arrival(0, 9, 70, 8, session=4, turn=3, is_conversational_turn=True)


@pytest.mark.parametrize("window", [None, (5, 8)])
def test_optional_events_are_those_of_a_window_and_then_no_event_leaves(window):
    """They are logged late: with a window, rows stay until the end."""
    left: list = []
    recorder = RunRecorder(window, lambda part: None)
    recorder.stream_events(left.append)
    for at_ns in (4, 5, 7, 8):
        recorder.log_milestone("admit", ARRIVAL, 2, at_ns)
        recorder.log_step(2, (at_ns, 30, 40, 50))
        recorder.log_eviction(2, "cpu", at_ns, 60)
    events = recorder.event_columns()
    names = [name for name, column in EVENT_COLUMNS.items() if column.dtype != "str"]
    rows = list(zip(*(events[name].tolist() for name in names), strict=True))
    each = ((0, 2, 0, 0, 0, 0), (30, 2, -1, 40, 50, 0), (0, 2, -1, 0, 60, 0))
    assert rows == [(at_ns, *own) for at_ns in ((5, 7) if window else ()) for own in each]
    for at_ns in (9, 10):
        recorder.add_events(struct.pack("9q", at_ns, *[0] * 8) * 40_000, at_ns)
    assert bool(left) is (window is None)


def test_the_row_of_a_request_that_was_not_served():
    recorder = RunRecorder(None, lambda part: None)
    recorder.close_unserved(ARRIVAL, Status.FAILED, 6)
    recorder.end()
    known = {"machine": 6, "session": 4, "turn": 3, "is_conversational_turn": 1, "input_tokens": 70}
    known |= {"status": STATUSES.index("failed"), "arrival_ns": 9, "output_tokens": 8}
    expected = dict.fromkeys(REQUEST_COLUMNS, 0) | known
    expected |= dict.fromkeys(("decode_machine", "first_token_ns", "finish_ns"), -1)
    assert {name: int(column[0]) for name, column in recorder.request_columns().items()} == expected
