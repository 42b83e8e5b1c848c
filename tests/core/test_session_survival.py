"""The survival curve, on turns that can be followed by hand (blocks of 16 tokens)."""

from fractions import Fraction

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from kvcache_sim.metrics.session_survival import SessionSurvival
from support.examples import examples

S = 10**9


def curve(rows):
    """Rows: session, turn, prompt, output, arrival s, finish s, gpu, cpu, disk tokens."""
    names = ["session", "turn", "input_tokens", "output_tokens", "arrival_ns", "finish_ns"]
    names += [f"cached_{tier}_tokens" for tier in ("gpu", "cpu", "disk")]
    columns = {name: np.asarray(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)}
    for name in ("arrival_ns", "finish_ns"):
        columns[name] = (columns[name] * S).astype(np.int64)
    columns["cached_remote_tokens"] = np.zeros(len(rows), np.int64)
    whole, halves = SessionSurvival(16), SessionSurvival(16)
    whole.add(columns)
    half = len(rows) // 2
    for part in (slice(half), slice(half, None)):
        halves.add({name: column[part] for name, column in columns.items()})
    assert halves.rows() == whole.rows(), "rows may come some at a time"
    return whole.rows()


FIGURES = ["gap_from_s", "gap_to_s", "turns", "survived", "partly", "gpu", "cpu", "disk", "remote", "lost"]


def test_a_prefix_that_moved_down_and_one_that_was_lost():
    rows = [
        # 100 + 13 − 1 = 112: seven blocks could survive
        (0, 0, 100, 13, 0.0, 5.0, 0, 0, 0),
        (0, 1, 200, 9, 8.0, 9.0, 48, 64, 0),  # 3 s later: whole, 48 gpu + 64 cpu
        (1, 0, 100, 13, 1.0, 5.0, 0, 0, 0),
        (1, 1, 200, 9, 8.5, 9.0, 32, 0, 0),  # 3.5 s: a part
        (2, 0, 100, 13, 1.0, 5.0, 0, 0, 0),
        (2, 1, 200, 9, 105.0, 110.0, 0, 0, 0),  # 100 s: lost
    ]
    near, far = curve(rows)
    figures = (2.0, 4.0, 2, 0.5, 0.5, 80 / 224, 64 / 224, 0.0, 0.0, 80 / 224)
    assert near == dict(zip(FIGURES, figures, strict=True))
    assert (far["gap_from_s"], far["gap_to_s"], far["survived"], far["lost"]) == (64.0, 128.0, 0.0, 1.0)


def test_what_others_left_is_not_the_sessions_and_its_own_last_token_does_not_count():
    rows = [
        (0, 0, 16, 17, 0.0, 1.0, 0, 0, 0),  # 32 tokens with KV: two blocks
        (0, 1, 100, 5, 1.0, 2.0, 96, 0, 0),  # found more than the session left
        (1, 0, 8, 8, 0.0, 1.0, 0, 0, 0),  # 15 tokens: nothing could survive
        (1, 1, 100, 5, 9.0, 10.0, 0, 0, 0),
        (-1, 0, 100, 5, 9.0, 10.0, 0, 0, 0),
        (-1, 1, 100, 5, 9.0, 10.0, 0, 0, 0),
        (2, 0, 100, 9, 0.0, 50.0, 0, 0, 0),
        (2, 1, 200, 9, 20.0, 60.0, 0, 0, 0),  # came before the answer was finished: no pause
        (3, 0, 100, 9, 0.0, 1.0, 0, 0, 0),
        (3, 2, 300, 9, 2.0, 3.0, 96, 0, 0),  # the turn between was rejected
    ]
    (only,) = curve(rows)
    assert (only["turns"], only["survived"], only["gpu"], only["lost"]) == (1, 1.0, 1.0, 0.0)


def test_a_gap_at_a_bound_begins_the_longer_range():
    turns = []
    for n, gap in enumerate((0, 1, 1.5, 2)):
        turns += [(n, 0, 100, 13, 0.0, 5.0, 0, 0, 0), (n, 1, 200, 9, 5.0 + gap, 9.0, 0, 0, 0)]
    assert [(row["gap_from_s"], row["turns"]) for row in curve(turns)] == [(0.0, 1), (1.0, 2), (2.0, 1)]


def test_no_sessions_no_curve():
    assert curve([(-1, 0, 100, 5, 9.0, 10.0, 0, 0, 0)]) == []


_prompts, _found = (st.sampled_from(own) for own in ((1, 16, 17, 32, 33, 48, 49, 80), (0, 0, 15, 16, 32, 64)))
_turns = st.lists(
    st.tuples(
        st.sampled_from((-1, 0, 0, 1, 1)),
        st.sampled_from((1, 1, 1, 2)),
        _prompts,
        st.sampled_from((1, 15, 16, 17)),
        st.sampled_from((0, 0.5, 1, 2, 3, 9, 16_385, 40_000)),
        st.integers(0, 2),
        *[_found] * 3,
    ),
    min_size=2,
    max_size=16,
)


@examples(60)
@example([(0, 1, 48, 16, 0, 1, 0, 0, 0), (0, 1, 48, 16, 2, 1, 16, 0, 0)])  # the first session alone
@given(_turns)
def test_the_curve_is_that_of_each_pair_of_turns_by_itself(drawn):
    """A turn follows the one before of its number; what is found counts from the fastest tier on, up to all."""
    rows, last, pairs = [], {}, {}
    for session, more, prompt, answer, gap_s, served_s, *found in drawn:
        before = last.get(session)
        turn = 0 if before is None else before[1] + more
        arrival_s = 0.0 if before is None else max(before[5] + gap_s - 1, 0)
        row = (session, turn, prompt, answer, arrival_s, arrival_s + served_s, *found)
        rows.append(row)
        last[session] = row
        if before is None or session < 0 or more > 1:
            continue
        could = min((before[2] + before[3] - 1) // 16, (prompt - 1) // 16) * 16
        pause_s = arrival_s - before[5]
        if not could or pause_s < 0:
            continue
        least = max((2.0**k for k in range(14, -1, -1) if 2.0**k <= pause_s), default=0.0)
        kept, left = [], could
        for tokens in found:
            kept.append(min(tokens, left))
            left -= kept[-1]
        pairs.setdefault(least, []).append((could, kept, left))
    expected = []
    for least, own in sorted(pairs.items()):
        whole = sum(could for could, _, _ in own)
        shares = [float(Fraction(sum(kept[tier] for _, kept, _ in own), whole)) for tier in range(3)]
        most = None if least == 2.0**14 else max(2 * least, 1.0)
        survived = sum(not left for *_, left in own) / len(own)
        partly = sum(0 < left < could for could, _, left in own) / len(own)
        lost = float(Fraction(sum(left for *_, left in own), whole))
        figures = (least, most, len(own), survived, partly, *shares, 0.0, lost)
        expected.append(dict(zip(FIGURES, figures, strict=True)))
    assert curve(rows) == expected
