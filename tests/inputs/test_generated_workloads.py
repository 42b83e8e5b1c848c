"""Generated workloads, held against closed forms on an unbounded cache; ``test_seed_000_workloads.py`` runs them."""

import io
import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import TraceError, UsageError
from kvcache_sim.workload.generate import KINDS, arrivals
from kvcache_sim.workload.missing_ids import fill_missing_ids, with_history
from kvcache_sim.workload.sessions import predecessors
from kvcache_sim.workload.trace import NOT_GIVEN
from support.examples import examples
from support.product.traces import build, select_rows, settings_of, upper_bound_hit_tokens, write_jsonl
from support.small_traces import trace_of
from unbounded_replay import prompt_ids, replay

SMALL = json.loads("""{
    "conversational": {"new_input_tokens": {"kind": "uniform", "min": 1, "max": 90}, "system_prompt_tokens": 70},
    "repetitive": {"instruction_tokens": {"kind": "uniform", "min": 1, "max": 300}},
    "diverse": {"prompt_tokens": {"kind": "lognormal", "median": 100, "sigma": 1.0, "min": 1, "max": 900}},
    "few-shot": {"prefix_tokens": {"kind": "uniform", "min": 1, "max": 300}, "shared_probability": 0.7},
    "overflow": {"window_tokens": 200, "kept_head_tokens": 50, "first_input_tokens": 60, "new_input_tokens": 40,
        "output_tokens": 17},
    "agentic": {"system_prompt_tokens": 100, "first_input_tokens": 33, "new_input_tokens": 29,
        "subagent_probability": 0.3},
    "rag": {"documents": 40, "document_tokens": {"kind": "uniform", "min": 5, "max": 60}, "system_prompt_tokens": 30}
}""")


def small(kind, seed=3, requests=400, **more):
    return build(kind, {"requests": requests, "block_size": 16, **SMALL[kind], **more}, seed)


def conversation(trace, session):
    return np.flatnonzero(trace.session == session).tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loop", ["open", "closed"])
def test_every_kind_makes_a_sound_trace(kind, loop):
    trace = small(kind, loop=loop)
    assert len(trace) == 400
    assert (np.diff(trace.arrival_ns) >= 0).all()
    counts = np.diff(trace.id_offsets)
    assert (counts == -(-trace.input_tokens // 16)).all()
    if len(trace.history_tokens):
        assert ((trace.history_tokens == NOT_GIVEN) == (trace.turn == 0)).all()
    # dense in order of first appearance
    _, first = np.unique(trace.block_ids, return_index=True)
    assert (np.diff(first) > 0).all()
    # chained: an id has one position and always follows the same id
    parent = {}
    for i in range(len(trace)):
        ids = prompt_ids(trace, i)
        for k, block in enumerate(ids):
            after = (k, ids[k - 1] if k else None)
            assert parent.setdefault(block, after) == after
    # turns of a session come in file order, from 0
    for session in range(len(trace.session_names)):
        rows = conversation(trace, session)
        assert trace.turn[rows].tolist() == list(range(len(rows)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_upper_bound_is_that_of_the_plain_replay(kind):
    trace = small(kind)
    for cache_output in (True, False):
        assert upper_bound_hit_tokens(trace, cache_output).tolist() == replay(trace, cache_output)


@pytest.mark.parametrize("kind", KINDS)
def test_a_longer_workload_begins_with_the_shorter_one(kind):
    # Chunks depend on the seed and their index alone, so asking for more rows changes none made before.
    more = {"loop": "closed", "concurrency": 1}
    short, long = (small(kind, requests=n, **more) for n in (1100, 2500))
    together = min(len(short), 1100)
    assert short.input_tokens.tolist() == long.input_tokens[:together].tolist()
    assert not np.array_equal(
        short.output_tokens, small(kind, seed=4, requests=1100, **more).output_tokens
    ) or (not np.array_equal(short.arrival_ns, small(kind, seed=4, requests=1100, **more).arrival_ns))


def test_stop_ends_the_conversation_and_summarise_starts_it_again():
    stop = small("overflow", on_overflow="stop")
    assert stop.input_tokens.max() <= 200
    assert {len(conversation(stop, s)) for s in range(len(stop.session_names))} >= {3}
    again = small("overflow", on_overflow="summarise", summary_tokens=30)
    rows = conversation(again, 0)
    # 60, +17+40, +17+40 = 174; then 231 > 200: head 50 + summary 30 + input 40 = 120, and on from there
    assert again.input_tokens[rows].tolist()[:6] == [60, 117, 174, 120, 177, 120]
    ended = small("overflow", on_overflow="summarise", summary_tokens=30, turns=4)
    assert ended.input_tokens[conversation(ended, 0)].tolist() == [60, 117, 174, 120]
    hits = np.asarray(replay(again))
    assert hits[rows[3]] == 48
    assert hits[rows[4]] == (120 + 17 - 1) // 16 * 16
    allowance = small("overflow", session_kv_tokens=176)
    assert allowance.input_tokens.max() == 176


@pytest.mark.parametrize(
    ("window", "kept"), [(174, [60, 117, 174]), (173, [60, 117]), (60, [60]), (175, [60, 117, 174])]
)
def test_a_prompt_that_fills_its_window_is_within_it(window, kept):
    stop = small("overflow", on_overflow="stop", window_tokens=window)
    whole = [rows for s in range(len(stop.session_names)) if (rows := conversation(stop, s))]
    assert stop.input_tokens[whole[0]].tolist() == kept
    for how in ("slide", "summarise"):
        other = small("overflow", on_overflow=how, window_tokens=max(window, 120), summary_tokens=30)
        rows = conversation(other, 0)
        assert other.input_tokens[rows].tolist()[: len(kept)] == kept


def test_a_sub_agent_extends_its_parents_prompt_and_waits_for_it():
    trace = small("agentic", loop="closed")
    waits_for = predecessors(trace)
    forks = np.flatnonzero((trace.turn == 0) & (waits_for >= 0))
    assert 20 < len(forks) < 100
    without = small("agentic", loop="closed", subagent_probability=0)
    assert not ((without.turn == 0) & (predecessors(without) >= 0)).any()
    heads = [tuple(prompt_ids(trace, i)[:7]) for i in np.flatnonzero(waits_for < 0)]
    assert len({head[:6] for head in heads}) == 1
    assert len(set(heads)) == len(heads) > 1
    hits = replay(trace)
    for i in forks:
        parent = waits_for[i]
        assert parent < i
        own = prompt_ids(trace, parent)[: int(trace.input_tokens[parent]) // 16]
        assert prompt_ids(trace, i)[: len(own)] == own
        assert hits[i] >= len(own) * 16 - 16


def test_request_i_has_instruction_i_modulo_their_number():
    """Also past the 1,024 requests that are made at once, which 7 does not divide."""
    more = {"requests": 2100, "instructions": 7, "instruction_tokens": 16, "variable_tokens": 5}
    trace = small("repetitive", **more)
    first = trace.block_ids[trace.id_offsets[:-1]]
    assert np.array_equal(first[7:], first[:-7])
    assert len(set(first.tolist())) == 7
    assert set(trace.input_tokens.tolist()) == {21}


def test_questions_come_after_their_documents():
    more = {"documents_per_prompt": 3, "document_tokens": 40, "question_tokens": 9}
    assert set(small("rag", **more).input_tokens.tolist()) == {30 + 3 * 40 + 9}


def test_ordered_documents_share_more_than_shuffled_ones():
    ordered, shuffled = (
        sum(replay(small("rag", requests=2000, document_order=order))) for order in ("ordered", "shuffled")
    )
    assert ordered > shuffled > 0


def test_concurrent_users_wait_for_their_own_last_request():
    trace = small("conversational", loop="closed", concurrency=5)
    waits_for = predecessors(trace)
    firsts = np.flatnonzero(trace.turn == 0)
    free = [i for i in firsts if waits_for[i] < 0]
    assert len(free) == 5
    assert (trace.think_ns[free] == -1).all()
    waited = waits_for[waits_for >= 0].tolist()
    assert len(waited) == len(set(waited)) == len(trace) - 5


def test_the_label_says_which_turns_follow_up():
    trace = small("conversational")
    assert np.array_equal(trace.is_conversational_turn, trace.turn > 0)


@pytest.mark.parametrize(
    ("kind", "target"), [("conversational", 0.5), ("repetitive", 0.6), ("few-shot", 0.33), ("rag", 0.45)]
)
def test_a_target_hit_ratio_is_reached(kind, target):
    shape = {
        "conversational": {"block_size": 16},
        "repetitive": {"block_size": 16, "instruction_tokens": 160, "variable_tokens": 40},
        "few-shot": {"block_size": 16},
        "rag": {"block_size": 16, "documents": 200},
    }[kind]
    trace = build(kind, {"requests": 4000, "target_hit_ratio": target, **shape}, 1)
    reached = sum(replay(trace)) / trace.input_tokens.sum()
    assert reached == pytest.approx(target, abs=0.01)
    assert f"reached {reached:.4f}" in trace.warnings[0]
    if kind == "repetitive":
        # closed form: a share q of the prompts, less the first of each instruction, reuses 160 of 200
        q = float(trace.warnings[0].split()[-1])
        assert reached == pytest.approx(q * 160 / 200, abs=0.02)


def test_a_window_that_no_first_prompt_fits_is_refused():
    with pytest.raises(UsageError, match="no request fits"):
        small("overflow", on_overflow="stop", first_input_tokens=500)


@pytest.mark.parametrize(
    ("arrivals", "mean_ms"),
    [
        ({"process": "constant", "rate_per_s": 50}, 20),
        ({"process": "poisson", "rate_per_s": 50}, 20),
        ({"process": "gamma", "rate_per_s": 50, "burstiness": 0.25}, 20),
        ({"process": "ramp", "from_per_s": 50, "to_per_s": 50, "duration": "9s"}, 20),
    ],
)
def test_arrivals_come_at_their_rate(arrivals, mean_ms):
    trace = small("diverse", requests=20_000, arrivals=arrivals)
    gaps = np.diff(trace.arrival_ns)
    assert gaps.mean() / 1e6 == pytest.approx(mean_ms, rel=0.05)
    spread = {"constant": 0.0, "gamma": 2.0}.get(arrivals["process"], 1.0)
    assert gaps.std() / gaps.mean() == pytest.approx(spread, abs=0.1)


@pytest.mark.parametrize("rates", [(10.0, 50.0), (50.0, 10.0), (0.5, 8.0), (4.0, 4.0)])
def test_a_ramp_integrates_its_rate_and_stays_at_the_second(rates):
    (a, b), seconds = rates, 8.0
    t = np.array([0.0, 0.5, 3.0, 8.0, 8.5, 20.0])
    on = np.minimum(t, seconds)
    exposure = a * on + (b - a) * on * on / (2 * seconds) + b * (t - on)
    found = arrivals.Ramp(a, b, 8 * 10**9).times_ns(exposure)
    assert found == pytest.approx(t * 1e9, abs=2)


def test_arrivals_at_the_rate_of_a_trace_start_again_at_its_end(tmp_path):
    """Bins of 2 s from the first arrival hold 3, 0, 1: time passes evenly in each, and in the one without any."""
    path, row = tmp_path / "four", {"input_length": 5, "output_length": 1}
    path.write_text("".join(json.dumps({"timestamp": 1000 * s, **row}) + "\n" for s in (5, 5, 6, 10)))
    process = arrivals.TraceRate(str(path), 2 * 10**9)
    exposure = np.array([0.0, 1.0, 1.5, 2.9999999999, 3.5, 4.0, 5.0, 7.5, 8.0])
    seconds = np.array([0, 2 / 3, 1, 2, 5, 6, 6 + 2 / 3, 11, 12])
    assert process.times_ns(exposure) / 1e9 == pytest.approx(seconds, abs=1e-8)


@examples(25)
@given(
    low=st.integers(1, 50),
    span=st.integers(0, 50),
    seed=st.integers(0, 2**32),
    kind=st.sampled_from(list(KINDS)),
)
def test_output_lengths_stay_within_their_bounds(low, span, seed, kind):
    trace = small(
        kind, seed=seed, requests=50, output_tokens={"kind": "uniform", "min": low, "max": low + span}
    )
    assert trace.output_tokens.min() >= low
    assert trace.output_tokens.max() <= low + span


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_first_turn_has_no_history_and_later_ones_have_that_of_their_session(seed):
    """Of agents and of what they start: those begin with the agent's prompt, and it is not their own history."""
    trace = small("agentic", seed=seed)
    assert len(set(trace.session.tolist())) > 20
    for session in set(trace.session.tolist()):
        rows = conversation(trace, session)
        rows.sort(key=lambda row: trace.turn[row])
        assert [trace.history_tokens[row] > 0 for row in rows] == [trace.turn[row] > 0 for row in rows]
        for before, after in itertools.pairwise(rows):
            held = trace.input_tokens[before] + trace.output_tokens[before]
            assert trace.history_tokens[after] == held < trace.input_tokens[after]


def test_rows_chosen_anew_still_wait_for_the_same_requests():
    trace = small("agentic", loop="closed", concurrency=4)
    kept = np.arange(len(trace))[::-1].copy()
    turned = select_rows(trace, kept)
    assert len(trace) - 1 - predecessors(turned)[::-1][turned.after[::-1] >= 0] == pytest.approx(
        trace.after[trace.after >= 0]
    )
    assert turned.history_tokens[::-1].tolist() == trace.history_tokens.tolist()
    head = select_rows(trace, np.arange(1, len(trace)))
    assert (head.after[trace.after[1:] == 0] == -1).all()


def test_new_input_only_rows_give_the_same_prompts_once_the_history_is_back():
    mapping = {"requests": 500, "block_size": 16, "prompt_structure": "new_input_only", "output_tokens": 17}
    whole = build("conversational", {**mapping, "prompt_structure": "full_history_plus_new_input"}, 2)
    assert build("conversational", mapping, 2).input_tokens.tolist() == whole.input_tokens.tolist()
    out = io.StringIO()
    write_jsonl(settings_of("conversational", mapping), 2, out)
    rows = [json.loads(line) for line in out.getvalue().splitlines()]
    assert {row["prompt_structure"] for row in rows} == {"new_input_only"}
    assert not any("hash_ids" in row for row in rows)
    assert {row["input_length"] for row in rows} == {1024, 128}
    bare = replace(
        whole,
        input_tokens=np.asarray([row["input_length"] for row in rows]),
        id_offsets=np.zeros(501, np.int64),
        block_ids=np.empty(0, np.uint32),
        history_tokens=np.empty(0, np.int64),
    )
    again = fill_missing_ids(with_history(bare))
    assert again.input_tokens.tolist() == whole.input_tokens.tolist()
    assert again.history_tokens[again.turn > 0].tolist() == whole.history_tokens[whole.turn > 0].tolist()
    assert replay(again) == replay(whole)
    with pytest.raises(TraceError, match="cannot have hash_ids"):
        with_history(whole)


def test_lengths_and_rate_of_a_trace(tmp_path):
    path = tmp_path / "t.jsonl"
    rows = [
        {"timestamp": 1000 * t, "input_length": n, "output_length": 2 * n}
        for t, n in [(0, 5), (1, 7), (1, 9), (1, 11), (5, 13)]
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    trace = small(
        "diverse",
        requests=5000,
        arrivals={"process": "trace", "path": str(path), "bin": "2s"},
        prompt_tokens={"kind": "trace", "path": str(path), "column": "input_tokens"},
        output_tokens={"kind": "empirical", "values": [3, 3, 8]},
    )
    assert set(trace.input_tokens.tolist()) == {5, 7, 9, 11, 13}
    assert (trace.output_tokens == 8).mean() == pytest.approx(1 / 3, abs=0.03)
    # 5 arrivals in 6 s, again and again: 4 of them in the first two seconds of each round, none in the next
    index = trace.arrival_ns % (6 * 10**9) // (2 * 10**9)
    assert np.bincount(index, minlength=3) / 5000 == pytest.approx([0.8, 0.0, 0.2], abs=0.03)
    assert trace.arrival_ns[-1] / 1e9 == pytest.approx(6000, rel=0.05)
    with pytest.raises(UsageError, match="trace not found"):
        settings_of("diverse", {"arrivals": {"process": "trace", "path": str(tmp_path / "no"), "bin": "2s"}})


@pytest.mark.parametrize(("tokens", "ids"), [(1023, 2), (1024, 2), (1025, 3)])
def test_a_prompt_of_whole_blocks_has_no_partial_one(tokens, ids):
    trace = build("diverse", {"requests": 5, "prompt_tokens": tokens, "block_size": 512}, 3)
    assert np.diff(trace.id_offsets).tolist() == [ids] * 5


@pytest.mark.parametrize(("tokens", "shared"), [(48, 0), (49, 2)])
def test_a_prompt_longer_than_the_turn_before_it_repeats_it(tokens, shared):
    trace = trace_of([[], []], 16, [32, tokens], output_tokens=[16, 1])
    filled = fill_missing_ids(replace(trace, session=np.zeros(2, np.int32), turn=np.array([0, 1], np.int32)))
    assert filled.block_ids.tolist() == [0, 1, *range(2 - shared, 5 - shared)]


@pytest.mark.parametrize(("documents", "exponent"), [(4, 0.0), (4, 1.0), (5, 3.0), (8, 0.5)])
def test_documents_are_drawn_by_zipfs_law(documents, exponent):
    """As many prompts have a document as its share of them; two documents of a prompt are two."""
    shape = {"documents": documents, "document_tokens": 16, "question_tokens": 16, "zipf_exponent": exponent}
    trace = small("rag", requests=40_000, documents_per_prompt=1, system_prompt_tokens=0, **shape)
    counts = np.sort(np.bincount(trace.block_ids[trace.id_offsets[:-1]]))[::-1][:documents]
    weights = [rank**-exponent for rank in range(1, documents + 1)]
    shares = [weight / sum(weights) for weight in weights]
    assert (counts / 40_000).tolist() == pytest.approx(shares, abs=0.01)
    if documents < 8:
        return  # a prompt needs four times as many to draw from
    pairs = small("rag", requests=500, documents_per_prompt=2, system_prompt_tokens=0, **shape)
    assert (pairs.block_ids[pairs.id_offsets[:-1]] != pairs.block_ids[pairs.id_offsets[:-1] + 1]).all()
