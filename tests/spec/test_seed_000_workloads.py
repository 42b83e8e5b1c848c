"""Seed 000, section 4: each shipped workload behaves as the seed expects, in numbers, and as it is varied."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kvcache_sim.metrics.columns import OUTCOMES
from kvcache_sim.metrics.summary import summarize
from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import simulate
from support.agreement import agree
from support.product.traces import previous_turns, upper_bound_hit_tokens

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
BLOCK = 16
CONVERSATIONAL, CROSS, MISS = (
    OUTCOMES.index(n) for n in ("CONVERSATIONAL_HIT", "CROSS_REQUEST_HIT", "MISS_FULL")
)
TIMES = ("queue_ns", "lookup_ns", "fetch_ns", "prefill_ns", "first_decode_ns", "first_token_ns", "finish_ns")


class Ran:
    """A scenario that was run: its trace, its columns and its events by request."""

    def __init__(self, name, *overrides, change=lambda trace: trace):
        scenario = load_scenario(SCENARIOS / f"{name}.yaml", ["tiers.gpu.capacity=unbounded", *overrides])
        self.trace = change(read_requests(scenario))
        self.run = simulate(scenario.settings, self.trace)
        self.summary = summarize(self.run, scenario.settings.cache.block_size_tokens)
        self.outcome, self.cached = self["outcome"], self["cached_prefix_length_used"]
        self.prompt, self.output = self.trace.input_tokens, self.trace.output_tokens

    def __getitem__(self, column):
        return self.run.requests[column]

    @property
    def ttft(self):
        return self["first_token_ns"] - self["arrival_ns"]

    @property
    def events(self):
        """Return [(type, cached length, tokens left)] of each request, in order."""
        log = self.run.events
        kinds, details = log["kind"], log["detail"]
        found = [[] for _ in range(len(self.trace))]
        for row in np.flatnonzero(kinds.codes == kinds.words.index("prefix_cache_event")):
            event = (details.words[details.codes[row]], int(log["tokens"][row]), int(log["left_tokens"][row]))
            found[int(log["request"][row])].append(event)
        return found


def rows(count, *more):
    return (f"workload.requests={count}", *more)


# -- 4.1 conversations


@pytest.mark.parametrize("new_input", [16, 250, 1000])
def test_a_follow_up_hits_prompt_and_answer_of_its_last_turn(new_input):
    ran = Ran("conversational", *rows(300, f"workload.new_input_tokens={new_input}"))
    before = previous_turns(ran.trace)
    follow_up = before >= 0
    held = (ran.prompt + ran.output)[before[follow_up]]
    assert (ran.outcome[follow_up] == CONVERSATIONAL).all()
    assert (ran.outcome[~follow_up] == MISS).all()
    assert ran.cached[follow_up].tolist() == ((held - 1) // BLOCK * BLOCK).tolist()
    assert ran["num_tokens_actually_prefilled"].tolist() == (ran.prompt - ran.cached).tolist()
    figures = ran.summary["prefix_cache"]
    assert figures["conversational_hit_rate"] == 1.0
    assert figures["overall_hit_rate"] == follow_up.sum() / 300
    # at most the new input, the last generated token and a part of a block are left to prefill
    assert (ran.prompt - ran.cached)[follow_up].max() <= new_input + BLOCK


def test_without_prefix_caching_a_follow_up_waits_longer():
    shape = rows(300, "workload.loop=open")
    cached, baseline = Ran("conversational", *shape), Ran("conversational", *shape, "cache.enabled=false")
    follow_up = cached.trace.turn > 0
    assert not baseline.cached.any()
    assert cached.ttft[follow_up].mean() < baseline.ttft[follow_up].mean() / 1.5
    assert cached["prefill_ns"][follow_up].sum() < baseline["prefill_ns"][follow_up].sum() / 2


# -- 4.2 repeated tasks


@pytest.mark.parametrize("instructions", [1, 6, 20])
@pytest.mark.parametrize("variable", [1, 40, 400])
def test_each_instruction_misses_once_when_requests_do_not_overlap(instructions, variable):
    ran = Ran(
        "repetitive",
        *rows(150, f"workload.instructions={instructions}", f"workload.variable_tokens={variable}"),
        "workload.arrivals.rate_per_s=0.4",
    )
    assert ran["queue_ns"].max() == 0
    assert (ran.outcome == MISS).sum() == instructions
    assert (ran.outcome[:instructions] == MISS).all()
    length = (ran.prompt - variable)[instructions:]
    assert (ran.outcome[instructions:] == CROSS).all()
    assert ran.cached[instructions:].tolist() == (length // BLOCK * BLOCK).tolist()


BURST = rows(
    90, "workload.arrivals.rate_per_s=100000", "workload.instruction_tokens=1500", "workload.instructions=2"
)


@pytest.mark.parametrize("full_hit", ["prefill-remainder", "skip-prefill"])
def test_instant_service_misses_each_instruction_once_however_requests_overlap(full_hit):
    ran = Ran("repetitive", *BURST, f"cache.full_hit={full_hit}", "replica.instant=true")
    assert (ran.outcome == MISS).sum() == 2


def test_overlapping_requests_compute_an_instruction_again_by_default():
    ran = Ran("repetitive", *BURST)
    # whoever is admitted before the first of its kind has ended its step finds nothing
    assert (ran.outcome == MISS).sum() > 2
    assert (ran.cached > 0).sum() > 60
    assert ran.run.counters["merged_blocks"] > 0


@pytest.mark.parametrize("accounting", ["detailed", "simplified"])
def test_overlapping_requests_that_wait_find_what_the_first_computed(accounting):
    shape = (*BURST, "replica.duplicate_prefill=wait")
    ran = Ran("repetitive", *shape, f"cache.accounting={accounting}")
    assert (ran.outcome == MISS).sum() == 2
    assert set(ran.cached.tolist()) == {0, 1500 // BLOCK * BLOCK}
    assert ran.run.counters["merged_blocks"] == 0
    assert ran["queue_ns"].max() > 0


# -- 4.3 diverse prompts


def test_unique_prompts_miss_and_take_the_time_they_would_take_without_a_cache():
    cached, baseline = Ran("diverse", *rows(300)), Ran("diverse", *rows(300), "cache.enabled=false")
    assert (cached.outcome == MISS).all()
    assert cached.summary["prefix_cache"]["prefill_ratio"] == 1.0
    for column in TIMES:
        assert np.array_equal(cached[column], baseline[column]), column


# -- 4.4 few-shot prefixes


@pytest.mark.parametrize(
    ("pool", "prefix", "query"), [(1, 100, 5), (12, 1000, 200), (40, 333, 16), (12, 15, 50)]
)
def test_each_few_shot_prefix_misses_once(pool, prefix, query):
    ran = Ran(
        "few-shot",
        *rows(400, f"workload.pool_size={pool}", f"workload.prefix_tokens={prefix}"),
        f"workload.query_tokens={query}",
        "replica.instant=true",
    )
    if prefix < BLOCK:  # a shared prefix of less than a block is never shared
        assert (ran.outcome == MISS).all()
        return
    first_id = ran.trace.block_ids[ran.trace.id_offsets[:-1]]
    assert (ran.outcome == MISS).sum() == len(np.unique(first_id)) == pool
    assert set(ran.cached.tolist()) == {0, prefix // BLOCK * BLOCK}


# -- 4.5 overflow


@pytest.mark.parametrize("window", [1600, 2400, 4096])
@pytest.mark.parametrize("head", [0, 90, 600])
@pytest.mark.parametrize("accounting", ["detailed", "simplified"])
def test_past_the_window_the_kept_head_alone_is_a_prefix(window, head, accounting):
    ran = Ran(
        "overflow",
        *rows(150, f"workload.window_tokens={window}", f"workload.kept_head_tokens={head}"),
        f"cache.accounting={accounting}",
        "replica.instant=true",
    )
    before = previous_turns(ran.trace)
    held = np.where(before >= 0, (ran.prompt + ran.output)[before], 0)
    history = ran.trace.history_tokens
    over = (before >= 0) & (history < held)
    assert over.sum() > 50
    assert (ran.prompt[over] == window).all()
    if accounting == "simplified":
        # what was cached of the history, as far as it is still inside the window
        assert ran.cached[over].tolist() == np.minimum(history, held)[over].tolist()
    else:
        assert set(ran.cached[over].tolist()) == {head // BLOCK * BLOCK}
    within = (before >= 0) & ~over
    expected = held if accounting == "simplified" else (held - 1) // BLOCK * BLOCK
    assert ran.cached[within].tolist() == expected[within].tolist()


def test_a_turn_of_a_cut_history_is_a_conversational_hit_of_what_is_left():
    ran = Ran("overflow", *rows(150), "replica.instant=true")
    for request, events in enumerate(ran.events):
        names = [name for name, _, _ in events]
        assert names == (["CONVERSATIONAL_HIT"] if ran.trace.turn[request] else ["MISS_FULL"])
    before = previous_turns(ran.trace)
    total = np.where(before >= 0, (ran.prompt + ran.output)[before], 0)
    assert ((before >= 0) & (ran.prompt <= total)).sum() > 30


def test_a_prompt_not_above_the_cached_total_is_unexpected_and_then_looked_up_across_requests():
    def untold(trace):
        return replace(trace, history_tokens=np.empty(0, np.int64))

    ran = Ran("overflow", *rows(150), "replica.instant=true", change=untold)
    before = previous_turns(ran.trace)
    for request, events in enumerate(ran.events):
        names = [name for name, _, _ in events]
        total = (ran.prompt + ran.output)[before[request]] if before[request] >= 0 else None
        if total is not None and ran.prompt[request] <= total:
            assert names == ["CONVERSATIONAL_MISS_UNEXPECTED_PROMPT", "CROSS_REQUEST_HIT"]
            assert events[0][1:] == (0, ran.prompt[request])
        elif total is not None:
            assert names == ["CONVERSATIONAL_HIT"]
    assert ran.summary["prefix_cache"]["events"]["CONVERSATIONAL_MISS_UNEXPECTED_PROMPT"] > 30


# -- agents


def test_sub_agents_hit_their_parents_prefix_across_sessions():
    ran = Ran("agentic", *rows(400), "tiers.cpu=null")
    names = ran.trace.session_names
    first = (ran.trace.turn == 0) & (ran.trace.think_ns >= 0)
    assert names
    assert first.sum() > 5
    assert (ran.outcome[first] == CROSS).all()
    assert (ran.outcome[ran.trace.turn > 0] == CONVERSATIONAL).all()


# -- the figures as a whole


@pytest.mark.parametrize(
    "name", ["conversational", "repetitive", "few-shot", "overflow", "agentic", "diverse"]
)
def test_instant_replay_without_bounds_hits_what_the_ceiling_says(name):
    ran = Ran(name, *rows(300), "workload.loop=open", *closed_only(name), "replica.instant=true")
    order = np.argsort(ran.trace.arrival_ns, kind="stable")
    assert np.array_equal(order, np.arange(300))
    assert ran.cached.tolist() == upper_bound_hit_tokens(ran.trace).tolist()


def closed_only(name):
    return ("workload.concurrency=0", "tiers.cpu=null") if name == "agentic" else ()


@pytest.mark.parametrize("name", ["conversational", "repetitive", "few-shot", "agentic"])
def test_outcomes_do_not_read_the_generators_labels(name):
    plain = Ran(name, *rows(200))
    swapped = Ran(
        name, *rows(200), change=lambda t: replace(t, is_conversational_turn=~t.is_conversational_turn)
    )
    assert plain.events == swapped.events
    assert plain.run.digest_events == swapped.run.digest_events
    assert plain.summary["prefix_cache"] == swapped.summary["prefix_cache"]


@pytest.mark.parametrize("name", ["conversational", "repetitive", "few-shot", "agentic", "diverse"])
@pytest.mark.parametrize("more", [(), ("cache.full_hit=skip-prefill",), ("cache.cache_output=false",)])
def test_both_accountings_log_the_same_events(name, more):
    shape = (*rows(250), "workload.loop=open", *closed_only(name), *more)
    if name == "conversational":
        shape += ("workload.system_prompt_tokens=500", "workload.conversational_probability=0.7")
    detailed = Ran(name, *shape, "replica.instant=true")
    simplified = Ran(name, *shape, "cache.accounting=simplified", "replica.instant=true")
    before = previous_turns(detailed.trace)
    answers = 0 if "cache.cache_output=false" in more else 1
    for request, (blocks, tokens) in enumerate(zip(detailed.events, simplified.events, strict=True)):
        assert [event[0] for event in blocks] == [event[0] for event in tokens]
        previous = before[request]
        total = detailed.prompt[previous] + answers * detailed.output[previous] if previous >= 0 else -1
        for (_, in_blocks, _), (_, in_tokens, _) in zip(blocks, tokens, strict=True):
            ends_in_generated = answers and in_tokens == total
            assert in_blocks == (in_tokens - ends_in_generated) // BLOCK * BLOCK


@pytest.mark.parametrize("name", ["repetitive", "few-shot", "diverse"])
def test_both_accountings_share_the_same_prefixes_within_a_size_limit(name):
    shape = (*rows(250), "replica.instant=true")
    cached = {}
    for limit in (2, 12, 40, None):
        within = () if limit is None else (f"prefix_view.max_tokens={limit * BLOCK}",)
        detailed = Ran(name, *shape, *within)
        assert detailed.events == Ran(name, *shape, *within, "cache.accounting=simplified").events
        cached[limit] = detailed.summary["tokens"]["cached"]
    assert cached[2] <= cached[12] <= cached[40] <= cached[None]
    assert (cached[2] < cached[None]) == (name != "diverse")


@pytest.mark.parametrize(
    "more",
    [("replica.duplicate_prefill=wait",), ("prefix_view.min_seen=2",), ("prefix_view.max_tokens=3000",)],
)
def test_the_views_agree(more):
    shape = [*rows(40), "tiers.gpu.capacity=700 blocks", "workload.arrivals.rate_per_s=50", *more]
    scenario = load_scenario(SCENARIOS / "few-shot.yaml", shape)
    agree(scenario.settings, read_requests(scenario))
