"""One conversation followed by hand through seed 000: event by event, block by block, nanosecond by
nanosecond.

Blocks hold 16 tokens. A step costs 1 ms plus 10 µs a prefilled token, a decode step 2 ms, so every time below
can be added up on paper.
"""

from dataclasses import replace

import numpy as np
import pytest
from kvcache_sim.cache.settings import CacheSettings, PrefixViewSettings, SessionViewSettings, TierSettings
from kvcache_sim.engine import NO_MACHINE, SAMPLE
from kvcache_sim.metrics.columns import OUTCOMES
from kvcache_sim.model.step_time import StepTimeTable
from kvcache_sim.serving.settings import ClusterSettings, MachineSettings, ReplicaSettings
from kvcache_sim.simulation import RunOptions
from kvcache_sim.simulation import simulate as run_of
from kvcache_sim.simulation.simulation import Simulation
from support.product.spec import SpecSimulation
from support.small_traces import trace_of

MS = 1_000_000
SECOND = 1000 * MS


def step_time():
    base = MS + np.arange(8193, dtype=np.int64) * 10_000
    decode = np.full(257, 2 * MS, np.int64)
    base[0] = decode[0] = 0
    return StepTimeTable(base, decode)


def trace(rows):
    """Rows: (arrival in s, session or −1, turn, prompt tokens, output tokens, ids of the prompt's blocks)."""
    arrival, session, turn, prompt, output, ids = zip(*rows, strict=True)
    made = trace_of(ids, 16, prompt, [int(a * SECOND) for a in arrival], output)
    made.session[:], made.turn[:], made.is_conversational_turn[:] = session, turn, np.array(turn) > 0
    return replace(made, session_names=["chat", "other"])


@pytest.fixture(params=["native", "spec", "spec-plain"])
def engine(request):
    """Run a test on the core, and on the specification over the core's store and over its own."""
    return request.param


def cluster(capacity=None, replica=None, **cache):
    return ClusterSettings(
        machines=(
            MachineSettings((TierSettings("gpu", capacity),), step_time(), replica or ReplicaSettings()),
        ),
        channels={},
        cache=CacheSettings(block_size_tokens=16, **cache),
    )


def simulate(rows, engine, **cache):
    return run_of(cluster(**cache), trace(rows), options=RunOptions(engine=engine))


def specified(rows, engine="spec-plain", **cache):
    """Return a run by the specification about to begin, and its one machine: they hold the seed's names."""
    simulation = SpecSimulation(cluster(**cache), trace(rows), RunOptions(engine=engine))
    return simulation, simulation.simulator.machines[0]


def logged(run, kind):
    """Return the events of a kind, in order: (request, time in ns, detail, tokens, tokens left)."""
    log = run.events
    names = ("request", "time_ns", "tokens", "left_tokens")
    rows = zip(*(log[name].tolist() for name in names), log["kind"].codes, log["detail"].codes, strict=True)
    words = log["detail"].words
    return [
        (request, now, words[detail], tokens, left)
        for request, now, tokens, left, code, detail in rows
        if log["kind"].words[code] == kind
    ]


def events(run):
    """Return the logged look-ups: (request, time in ns, event type, cached length, tokens left)."""
    return logged(run, "prefix_cache_event")


def prefilled(run):
    """Return the tokens of each prefill that started, by request."""
    return [(request, tokens) for request, _, _, tokens, _ in logged(run, "prefill_start")]


CHAT = [
    # turn 0: 40 tokens, two full blocks a b and eight tokens of c
    (0, 0, 0, 40, 9, ["a", "b", "c0"]),
    # turn 1: 40 + 9 + 31 = 80 tokens; the third block holds 8 old, 8 answered tokens: c; then d, e
    (1, 0, 1, 80, 16, ["a", "b", "c", "d", "e"]),
    # turn 2: 80 + 16 + 4 = 100 tokens; the answer fills f, but its last token never got KV
    (2, 0, 2, 100, 5, ["a", "b", "c", "d", "e", "f", "g0"]),
    # turn 3: the user went back: 60 tokens, not above the 105 that are cached
    (3, 0, 3, 60, 2, ["a", "b", "c", "d0"]),
    # another session begins with the same 48 tokens
    (4, 1, 0, 50, 1, ["a", "b", "c", "x0"]),
]


def test_a_conversation_event_by_event(engine):
    run = simulate(CHAT, engine)
    assert events(run) == [
        (0, 0, "MISS_FULL", 0, 40),
        # 49 tokens stand in the session, 48 of them have KV: three blocks
        (1, 1 * SECOND, "CONVERSATIONAL_HIT", 48, 32),
        # 96 tokens stand there; the 96th has no KV: five blocks, not six
        (2, 2 * SECOND, "CONVERSATIONAL_HIT", 80, 20),
        # 105 stand there: the prompt is shorter, so the session says nothing; the blocks a b c are shared
        (3, 3 * SECOND, "CONVERSATIONAL_MISS_UNEXPECTED_PROMPT", 0, 60),
        (3, 3 * SECOND, "CROSS_REQUEST_HIT", 48, 12),
        # every block that may hit did, but tokens are left to prefill: no full hit
        (4, 4 * SECOND, "CROSS_REQUEST_HIT", 48, 2),
    ]
    requests = run.requests
    assert requests["cached_prefix_length_used"].tolist() == [0, 48, 80, 48, 48]
    assert requests["num_tokens_actually_prefilled"].tolist() == [40, 32, 20, 12, 2]
    # prefill: 1 ms and 10 µs a missed token; then 2 ms a decode step
    assert (requests["first_token_ns"] - requests["arrival_ns"]).tolist() == [
        MS + 400_000,
        MS + 320_000,
        MS + 200_000,
        MS + 120_000,
        MS + 20_000,
    ]
    assert (requests["finish_ns"] - requests["first_token_ns"]).tolist() == [
        8 * 2 * MS,
        15 * 2 * MS,
        4 * 2 * MS,
        2 * MS,
        0,
    ]


@pytest.mark.parametrize("engine", ["spec", "spec-plain"])
def test_what_a_conversation_leaves_session_by_session_and_block_by_block(engine):
    simulation, machine = specified(CHAT, engine)
    simulation.run()
    state = simulation.simulator.lookups[0].sessions.active_sessions_kv_state
    assert list(state) == ["chat", "other"]
    chat = state["chat"]
    assert chat.session_id == "chat"
    assert (chat.total_tokens_in_cache, chat.prompt_part_length, chat.response_part_length) == (62, 60, 2)
    assert chat.associated_sequence_id == "3"
    assert list(chat.kv_block_ids) == [0, 1, 3, 8]  # a b c d0 in order of first appearance
    assert chat.last_update_time == pytest.approx(3.00312)
    # Six blocks are resident: a b c d e, and f of turn 2, whose KV came with its prefill.
    assert machine.store.occupancy(0)[1:] == (0, 6, 0, 0), "kept for reuse, none is held"


def test_a_sequence_knows_what_of_its_prompt_is_processed_and_in_which_blocks():
    seen = []

    def prefilled(s):
        seen.append(
            (s.cached_prefix_length_used, s.num_tokens_requiring_prefill, s.prompt_tokens_fully_processed)
        )
        assert list(s.kv_block_ids_for_prompt) == ids[s.request]
        assert s.prefill_end_time_sim == pytest.approx(ends[s.request])

    # dense ids in order of first appearance
    ids = [[0, 1, 2], [0, 1, 3, 4, 5], [0, 1, 3, 4, 5, 6, 7], [0, 1, 3, 8], [0, 1, 3, 9]]
    ends = [0.0014, 1.00132, 2.0012, 3.00112, 4.00102]
    simulation, machine = specified(CHAT)
    milestones = machine.milestones
    admit, end_prefill = milestones.admitted, milestones.prefilled

    def end(s, now):
        end_prefill(s, now)
        prefilled(s)

    def admitted(s, reused_blocks, now):
        admit(s, reused_blocks, now)
        assert (s.prompt_tokens_fully_processed, *s.kv_block_ids_for_prompt) == (0,)
        assert s.prefill_end_time_sim == -1
        seen.append("admitted")

    milestones.admitted, milestones.prefilled = admitted, end
    simulation.run()
    assert seen[::2] == ["admitted"] * 5
    assert seen[1::2] == [(0, 40, 40), (48, 32, 80), (80, 20, 100), (48, 12, 60), (48, 2, 50)]


@pytest.mark.parametrize(
    ("accounting", "engine"), [("detailed", "spec"), ("detailed", "spec-plain"), ("simplified", "spec-plain")]
)
def test_a_prompt_is_processed_chunk_by_chunk(accounting, engine):
    """A budget of 20 tokens a step: 48 cached, then 20, 20 and 12 more; a step takes 1 ms and 10 us a
    token."""
    rows = [
        (0, -1, 0, 50, 1, ["a", "b", "c", "x0"]),
        (1, -1, 0, 100, 3, ["a", "b", "c", "d", "e", "f", "g0"]),
    ]
    budget = ReplicaSettings(max_num_batched_tokens=20)
    simulation, machine = specified(rows, engine, replica=budget, accounting=accounting)
    seen, served = [], []
    milestones = machine.milestones
    arrived = milestones.arrived

    def arrives(sequence, now):
        served.append(sequence)
        assert (sequence.prompt_tokens_fully_processed, *sequence.kv_block_ids_for_prompt) == (0,)
        arrived(sequence, now)

    milestones.arrived = arrives

    def look(_):
        s = served[-1]
        seen.append((s.status.name, s.prompt_tokens_fully_processed, len(s.kv_block_ids_for_prompt)))

    at = SECOND + 1  # a nanosecond into each step, and into the first step after the prefill
    for tokens in (20, 20, 12, 0):
        simulation.simulator.engine.schedule(at, SAMPLE, NO_MACHINE, look)
        at += MS + tokens * 10_000
    simulation.run()
    assert seen == [("PREFILLING", 48, 3), ("PREFILLING", 68, 5), ("PREFILLING", 88, 6), ("DECODING", 100, 7)]
    assert served[-1].prompt_tokens_fully_processed == 100
    assert list(served[-1].kv_block_ids_for_prompt) == [0, 1, 2, 4, 5, 6, 7]


def test_the_same_conversation_when_its_blocks_had_to_go(engine):
    # Four blocks: turn 0 fits with its answer; another prompt of four blocks then takes them all.
    rows = [CHAT[0], (0.5, -1, 0, 60, 2, ["w", "x", "y", "z0"]), (1, 0, 1, 60, 2, ["a", "b", "c", "d0"])]
    run = simulate(rows, engine, capacity=4)
    # The session is known and its prompt is longer, but nothing of it is resident: a hit of 0 does not exist.
    assert [(request, name) for request, _, name, _, _ in events(run)] == [
        (0, "MISS_FULL"),
        (1, "MISS_FULL"),
        (2, "MISS_FULL"),
    ]


def test_a_session_forgotten_is_like_any_other_request(engine):
    run = simulate(CHAT[:2], engine, session_view=SessionViewSettings(ttl_ns=SECOND // 2))
    assert [name for _, _, name, _, _ in events(run)] == ["MISS_FULL", "CROSS_REQUEST_HIT"]
    other = [CHAT[0], (0.5, 1, 0, 20, 1, ["q", "r0"]), CHAT[1]]
    run = simulate(other, engine, session_view=SessionViewSettings(max_sessions=1))
    assert [name for _, _, name, _, _ in events(run)] == ["MISS_FULL", "MISS_FULL", "CROSS_REQUEST_HIT"]


SAME = [(t, -1, 0, 50, 2, ["a", "b", "c", f"x{t}"]) for t in range(4)]


@pytest.mark.parametrize("accounting", ["detailed", "simplified"])
@pytest.mark.parametrize(
    ("view", "cached"),
    [
        (PrefixViewSettings(), [0, 48, 48, 48]),
        (PrefixViewSettings(min_seen=2), [0, 0, 48, 48]),
        (PrefixViewSettings(min_seen=4), [0, 0, 0, 0]),
        (PrefixViewSettings(min_tokens=48), [0, 48, 48, 48]),
        (PrefixViewSettings(min_tokens=49), [0, 0, 0, 0]),
    ],
)
def test_a_prefix_is_shared_as_far_as_it_was_admitted(engine, accounting, view, cached):
    run = simulate(SAME, engine, accounting=accounting, prefix_view=view)
    assert run.requests["cached_prefix_length_used"].tolist() == cached


#: Two texts of three whole blocks, each with an end of its own.
TEXTS = [(t, -1, 0, 50, 2, [*text, f"x{t}"]) for t, text in enumerate(["abc", "abc", "def", "abc", "abc"])]


@pytest.mark.parametrize("accounting", ["detailed", "simplified"])
@pytest.mark.parametrize(
    ("max_tokens", "cached"),
    [
        (96, [0, 48, 0, 48, 48]),  # both texts fit
        # the second text evicts the first one's last block, the longest prefix first
        (95, [0, 48, 0, 32, 48]),
        (48, [0, 48, 0, 0, 48]),
        (33, [0, 32, 0, 0, 32]),  # two blocks
        (15, [0, 0, 0, 0, 0]),
    ],
)
def test_a_size_limit_evicts_the_least_recently_used_prefix(engine, accounting, max_tokens, cached):
    """LRU eviction from ``global_prefix_store`` itself if it has a size limit (seed 000, 3.4)."""
    view = PrefixViewSettings(max_tokens=max_tokens)
    run = simulate(TEXTS, engine, accounting=accounting, prefix_view=view)
    assert run.requests["cached_prefix_length_used"].tolist() == cached


@pytest.mark.parametrize("accounting", ["detailed", "simplified"])
def test_a_prefix_in_use_is_not_evicted_for_the_size_limit(engine, accounting):
    """While a request of one text runs, another text finds no space; afterwards it does."""
    rows = [
        (0.0, -1, 0, 50, 900, list("abcx")),
        *((t, -1, 0, 50, 2, list("defx")) for t in (0.2, 0.4, 99, 100)),
    ]
    view = PrefixViewSettings(max_tokens=48)
    run = simulate(rows, engine, accounting=accounting, prefix_view=view)
    assert run.requests["finish_ns"][0] > run.requests["finish_ns"][2], "the first one runs meanwhile"
    assert run.requests["cached_prefix_length_used"].tolist() == [0, 0, 0, 0, 48]


@pytest.mark.parametrize(
    "view", [PrefixViewSettings(max_tokens=16), PrefixViewSettings(min_seen=9, min_tokens=500)]
)
def test_a_follow_up_needs_no_entry_and_no_admission_in_the_prefix_store(engine, view):
    run = simulate(CHAT[:3], engine, prefix_view=view)
    assert run.requests["cached_prefix_length_used"].tolist() == [0, 48, 80]


TWICE = [(0, -1, 0, 48, 3, ["a", "b", "c"]), (1, -1, 0, 48, 3, ["a", "b", "c"])]


@pytest.mark.parametrize("accounting", ["detailed", "simplified"])
def test_a_full_hit_prefills_the_last_block_by_default(engine, accounting):
    run = simulate(TWICE, engine, accounting=accounting)
    assert events(run)[1:] == [(1, SECOND, "CROSS_REQUEST_HIT", 32, 16)]
    assert run.requests["first_token_ns"][1] == SECOND + MS + 160_000


@pytest.mark.parametrize("accounting", ["detailed", "simplified"])
@pytest.mark.parametrize("left", [2, 15])
def test_a_remainder_of_less_than_a_block_is_prefilled_and_no_full_hit(engine, accounting, left):
    rows = [(t, -1, 0, 48 + left, 3, ["a", "b", "c", f"x{t}"]) for t in range(2)]
    run = simulate(rows, engine, accounting=accounting, full_hit="skip-prefill")
    assert events(run)[1:] == [(1, SECOND, "CROSS_REQUEST_HIT", 48, left)]
    assert prefilled(run) == [(0, 48 + left), (1, left)]


@pytest.mark.parametrize("accounting", ["detailed", "simplified"])
def test_a_full_hit_goes_straight_to_decoding_under_skip_prefill(engine, accounting):
    run = simulate(TWICE, engine, accounting=accounting, full_hit="skip-prefill")
    assert events(run)[1:] == [
        (1, SECOND, "CROSS_REQUEST_HIT", 48, 0),
        (1, SECOND, "FULL_HIT_NO_PREFILL_NEEDED", 48, 0),
    ]
    requests = run.requests
    # The prefill ends at the moment of the hit: the first token comes with the first decode step, 2 ms later.
    assert requests["prefill_ns"][1] == 0
    assert requests["first_decode_ns"][1] == 2 * MS
    assert requests["first_token_ns"][1] - requests["arrival_ns"][1] == 2 * MS
    assert requests["num_tokens_actually_prefilled"].tolist() == [48, 0]
    # No prefill was started for it.
    assert prefilled(run) == [(0, 48)]


def test_the_missed_tokens_pay_for_their_attention_to_the_cached_past(engine):
    # The same 32 missed tokens take longer behind 48 cached ones than alone: pairs of (new, past) tokens.
    costly = replace(step_time(), pair_half_fs=1_000_000_000)  # 1 µs for half a pair
    plain = cluster()
    settings = replace(plain, machines=(replace(plain.machines[0], step_time=costly),))
    rows = [CHAT[0], CHAT[1], (9, -1, 0, 32, 1, ["p", "q"])]
    run = run_of(settings, trace(rows), options=RunOptions(engine=engine))
    ttft = run.requests["first_token_ns"] - run.requests["arrival_ns"]
    assert ttft[1] - ttft[2] == 2 * 32 * 48 * 1000
    assert OUTCOMES[run.requests["outcome"][1]] == "CONVERSATIONAL_HIT"


def test_a_request_without_output_tokens_ends_with_its_prefill(engine):
    run = simulate([(0, 0, 0, 40, 0, ["a", "b", "c0"]), (1, 0, 1, 60, 0, ["a", "b", "c", "d0"])], engine)
    requests = run.requests
    assert requests["first_token_ns"].tolist() == requests["finish_ns"].tolist()
    assert requests["finish_ns"].tolist() == [MS + 400_000, SECOND + MS + 280_000]
    assert requests["output_tokens"].tolist() == [0, 0]
    assert requests["cached_prefix_length_used"].tolist() == [0, 32]


def test_the_global_prefix_store_is_a_view_of_the_trie():
    simulation = Simulation(cluster(), trace(CHAT), RunOptions(prefixes=True))
    run = simulation.run()
    names = ("length", "blocks", "reference_count", "last_access_ns", "hits")
    assert run.prefixes is not None
    entries = list(zip(*(run.prefixes[name].tolist() for name in names), strict=True))
    # a b c were found by four requests, and used last by the fifth; d e by turn 2, which then left f
    assert entries == [
        (48, 3, 0, 4 * SECOND + MS + 20_000, 4),
        (80, 5, 0, 2 * SECOND + 9_200_000, 1),
        (96, 6, 0, 2 * SECOND + 9_200_000, 0),
    ]
    # Without users they are still there; while a request runs its prefix has a user.
    store = simulation.replicas[0].store
    assert [part[:2] for part in store.uses(2, 6)] == [(3, 0), (5, 0), (6, 0)]
    lease = store.acquire(4, 3)
    assert [part[:2] for part in store.uses(2, 6)] == [(3, 1), (5, 0), (6, 0)]
    store.release(lease, 0)
