"""Each sentence of ``explain`` at its threshold, figure by figure, on columns made by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.metrics.columns import OUTCOMES, miss_column
from kvcache_sim.metrics.run import CodedText
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.replay.miss_causes import reported_by
from kvcache_sim.report.explain import break_even as loading
from kvcache_sim.report.explain import latency, prefixes, session_cache, tiers
from kvcache_sim.report.explain.case import Case, percent
from kvcache_sim.report.explain.certainty import TOPIC, certain_figures, missing_intervals
from kvcache_sim.report.explain.sentences import SENTENCES
from kvcache_sim.report.pictures.waterfall import PARTS

MS = 1_000_000
FIRST = "queue_ns"
SAID = {name: say for group in SENTENCES.values() for name, say in group.items()}


def case_of(count=1, **columns):
    """Return a case of requests that wait 1,000 ms each, in the named parts (ms), the rest in the client."""
    rows = {column: np.zeros(count, np.int64) for column in PARTS.values()}
    rows |= {"batch_stall_ns": np.zeros(count, np.int64), "handover_room_ns": np.zeros(count, np.int64)}
    for name, ms in columns.items():
        rows[name] = (np.full(count, ms, float) * MS).astype(np.int64)
    rows["client_ns"] = 1000 * MS - sum(rows[part] for part in PARTS.values() if part != "client_ns")
    rows |= {"request": np.arange(count), "arrival_ns": np.arange(count) * MS}
    rows["first_token_ns"] = rows["arrival_ns"] + 1000 * MS
    return Case(SimpleNamespace(finished=rows, summary={}))


@pytest.mark.parametrize(
    ("say", "columns", "less", "words"),
    [
        ("queueing", {"queue_ns": 500}, {"queue_ns": 499.9}, "At p99, 50.0 % of TTFT is queueing"),
        ("prefilling", {"prefill_ns": 500}, {"prefill_ns": 499.9}, "At p99, 50.0 % of TTFT is prefill"),
        ("fetching", {"fetch_cpu_ns": 250, "fetch_disk_ns": 240}, {"fetch_cpu_ns": 249, "fetch_disk_ns": 249}, "25.0 % of TTFT waits for KV from cpu"),
        ("waiting-for-room", {"fetch_room_ns": 50}, {"fetch_room_ns": 49.9}, "At p99, 5.0 % of TTFT waits for the write-back"),
        ("batch-stalls", {"batch_stall_ns": 5, "prefill_ns": 100}, {"batch_stall_ns": 4.9, "prefill_ns": 100}, "5.0 % of prefill time"),
        ("batch-stalls", {"batch_stall_ns": 200, "prefill_ns": 400}, {"batch_stall_ns": 9}, "50.0 % of prefill time"),
        ("handovers", {"handover_ns": 50, "handover_room_ns": 10}, {"handover_ns": 49.9}, "takes 5.0 % of the mean TTFT; 20.0 % of it"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("count", [1, 3])
def test_a_part_of_ttft_is_named_from_its_least_share_on(say, columns, less, words, count):
    assert words in SAID[say](case_of(count, **columns))
    assert SAID[say](case_of(count, **less)) is None
    assert SAID[say](case_of(0, **columns)) is None


def test_the_tail_is_that_of_the_slowest_and_not_of_the_mean():
    case = case_of(100, queue_ns=0)
    rows = case.run.finished
    rows["queue_ns"][98:] = 9000 * MS
    rows["first_token_ns"][98:] += 9000 * MS
    assert latency.tail_of("queue_ns", case).startswith("At p99, 90.0 % of TTFT is queueing")
    rows["queue_ns"][98:], rows["queue_ns"][:98] = 0, 900 * MS
    assert latency.tail_of("queue_ns", case) is None
    assert latency.parts(case_of(0)) is None


@pytest.mark.parametrize(
    ("ms", "is_shown"), [(0.04, False), (5.01, True), (0.0, False), (0.06, True), (900, True)]
)
def test_parts_of_the_mean_are_shown_unless_they_round_to_nothing(ms, is_shown):
    assert (
        f"queue {ms:g} ms" in latency.parts(case_of(2, queue_ns=ms)).replace("60 us", "0.06 ms")
    ) is is_shown


@pytest.mark.parametrize(("whole_us", "is_shown"), [(8000, False), (7900, True)])
def test_a_short_part_of_a_short_wait_is_shown_above_half_a_per_cent(whole_us, is_shown):
    case = case_of(1, queue_ns=0.04)
    case.run.finished["first_token_ns"][:] = whole_us * 1000
    assert ("queue 40 us" in latency.parts(case)) is is_shown


@pytest.mark.parametrize(
    ("counts", "tokens", "words"),
    [([0, 0], [5, 5], None), ([1, 0], [7, 0], "1 preemption: running requests lost their blocks and recomputed 7 tokens"),
     ([1, 1], [1000, 234], "2 preemptions: running requests lost their blocks and recomputed 1,234 tokens")],
)  # fmt: skip
def test_preemptions_are_added_up(counts, tokens, words):
    rows = {"preemptions": np.array(counts), "recomputed_tokens": np.array(tokens)}
    text = latency.preemptions(SimpleNamespace(run=SimpleNamespace(finished=rows)))
    assert text is None if words is None else text.startswith(words)


def test_rejected_requests_by_their_machines_context_or_for_its_blocks():
    """Machines of 100 tokens, of 50 and without a bound; a prompt as long as the context leaves no answer."""
    asked = [(1, 100, 0), (1, 99, 0), (0, 999, 0), (1, 60, 1), (1, 49, 1), (2, 999, 2), (1, 50, 1)]
    rows = {
        name: np.array(own)
        for name, own in zip(("status", "input_tokens", "machine"), zip(*asked, strict=True), strict=True)
    }
    own = [SimpleNamespace(replica=SimpleNamespace(max_model_len=most)) for most in (100, 50, None)]
    scenario = SimpleNamespace(settings=SimpleNamespace(machines=own))
    for chosen, beyond, blocks in (([*range(7)], 3, 3), ([0, 2], 1, 0), ([2, 4], 0, 1), ([2], 0, 0)):
        run = SimpleNamespace(requests={name: column[chosen] for name, column in rows.items()})
        text = latency.rejections(SimpleNamespace(run=run, scenario=scenario))
        said = [f"{count} request{'s were' if count > 1 else ' was'} rejected: {why}" for count, why in (
            (beyond, "the prompt has replica.max_model_len tokens or more. replica.on_overflow=slide drops the oldest history instead."),
            (blocks, "more blocks needed than a gpu has.")) if count]  # fmt: skip
        assert text == (" ".join(said) or None)


def machines(*kinds, roles=None, **settings):
    made = [
        SimpleNamespace(tiers=[SimpleNamespace(name=name) for name in own], role=role)
        for own, role in zip(kinds, roles or ["both"] * len(kinds), strict=True)
    ]
    return SimpleNamespace(settings=SimpleNamespace(machines=made, **settings))


def tiered(summary=None, rows=None, scenario=None, reuse=None):
    case = Case(SimpleNamespace(summary=summary or {}, finished=rows or {}, requests=rows or {}))
    case.scenario, case.reuse = scenario, reuse
    return case


@pytest.mark.parametrize(
    ("needed", "words"),
    [({}, None), ({"a": (5e9, None)}, None), ({"a": (5e9, 5e9)}, None), ({"a": (5e9, None), "b": (2e9, 3e9), "c": (1e10, 1.2e10)},
      "b: to hide loading behind compute in 99 % of steps, this link would need 3 GB/s; it has 2.")],
)  # fmt: skip
def test_the_link_that_falls_shortest_is_too_slow(needed, words):
    channels = {
        name: {"bandwidth_bytes_per_s": has, "needed_bytes_per_s": {"p99": p99}} for name, (has, p99) in needed.items()
    }  # fmt: skip
    assert tiers.too_slow(tiered({"channels": channels})) == words


@pytest.mark.parametrize(
    ("mean", "hottest", "words"),
    [(0.99, 9.0, None), (None, None, None), (1.0, 1.0, "disk: 1 drive writes per day: use"), (1.004, 1.0, "disk: 1 drive writes per day: use"),
     (2.5, 4.0, "disk: 2.5 drive writes per day (4 on the hottest machine): use")],
)  # fmt: skip
def test_drive_writes_are_reported_from_one_a_day(mean, hottest, words):
    tier = {"drive_writes_per_day": mean, "drive_writes_per_day_hottest": hottest}
    text = tiers.drive_writes(tiered({"tiers": {"disk": tier}}))
    assert text is None if words is None else text.startswith(words)


@pytest.mark.parametrize(
    ("reason", "evicted", "dropped", "missed", "words"),
    [(None, 5, 5, 0, None), ("no", 0, 0, 9, "no."), ("no", 0, 1200, 9, "no. 1,200 blocks were dropped before reaching it."),
     ("no", 1200, 9, 1, "no (1,200 blocks evicted from cpu)."), ("no", 1, 9, None, "no (1 block evicted from cpu)."),
     ("no", 1, 9, 0, "no (1 block evicted from cpu). None of these blocks was requested again: no tier of any size would have served them.")],
)  # fmt: skip
def test_a_tier_without_effect_has_its_reason(reason, evicted, dropped, missed, words):
    summary = {
        "tiers": {"disk": {"no_effect": reason}},
        "cache": {"evictions": {"gpu": 77, "cpu": evicted, "disk": 78}, "dropped_blocks": dropped},
    }
    reuse = None if missed is None else SimpleNamespace(missed={"evicted": np.array([0, missed])})
    assert tiers.unused("disk", tiered(summary, reuse=reuse)) == words


@pytest.mark.parametrize(
    ("blocks", "overflow", "words"),
    [(0, "wait", None), (1, "wait", "1 block was dropped: not written down, or behind a block that left. A larger tier below keeps them."),
     (2000, "drop", "2,000 blocks were dropped: not written down, or behind a block that left. A larger tier below or cache.overflow=wait keeps them.")],
)  # fmt: skip
def test_dropped_blocks_have_their_remedy(blocks, overflow, words):
    scenario = machines(("gpu",), cache=SimpleNamespace(overflow=overflow))
    assert tiers.dropped(tiered({"cache": {"dropped_blocks": blocks}}, scenario=scenario)) == words
    assert tiered({"cache": {}}).dropped_blocks == 0


def test_a_tiers_hits_are_a_share_of_all_prompt_tokens_and_their_waits_that_of_its_readers():
    rows = {"request": np.arange(4), "input_tokens": np.array([400, 300, 200, 100]),
            "cached_disk_tokens": np.array([0, 150, 100, 0]), "fetch_disk_ns": np.array([0, 3, 5, 0]) * MS,
            "cached_cpu_tokens": np.array([5, 0, 0, 0]), "fetch_cpu_ns": np.array([2, 0, 0, 0]) * MS,
            "cached_remote_tokens": np.zeros(4, int)}  # fmt: skip
    case = tiered(rows=rows)
    said = [tiers.used(name, case) for name in ("disk", "cpu", "remote")]
    assert said == [
        "disk served 25.0 % of prompt tokens to 2 requests, with a mean wait of 4 ms.",
        "cpu served 0.5 % of prompt tokens to 1 request, with a mean wait of 2 ms.",
        None,
    ]


@pytest.mark.parametrize(
    ("requests", "roles", "words"),
    [([5], "p", None), ([5, 0], "pd", None), ([5, 4], "pp", None), ([5, 0, 0], "ppd", "1 of 2"), ([0, 5, 0], "ppp", "2 of 3"), ([], "pp", None)],
)  # fmt: skip
def test_machines_without_a_request_are_counted_among_those_that_the_router_may_choose(
    requests, roles, words
):
    names = ["decode" if role == "d" else "both" for role in roles]
    scenario = machines(*[("gpu",)] * len(roles), roles=names, router=SimpleNamespace(policy="own"))
    text = tiers.idle_machines(tiered({"machines": {"requests": requests}}, scenario=scenario))
    assert (
        text is None
        if words is None
        else text.startswith(f"{words} machines got no request: the router (own)")
    )
    assert (tiers.router_without_choice(tiered(scenario=scenario)) is None) is (len(roles) > 1)


@pytest.mark.parametrize(
    ("kinds", "evicted", "tier_names", "has_choice"),
    [([("gpu",)], {"gpu": 0}, ("gpu",), False), ([("gpu",), ("disk", "gpu")], {"gpu": 0, "disk": 2}, ("gpu", "disk"), True),
     ([("gpu",), ("gpu",)], {"gpu": 1, "cpu": 0}, ("gpu",), True), ([("gpu",)], {"gpu": 0, "cpu": 7}, ("gpu",), False)],
)  # fmt: skip
def test_policies_matter_where_a_tier_of_the_machines_evicts_or_lies_below(
    kinds, evicted, tier_names, has_choice
):
    scenario = machines(*kinds, cache=SimpleNamespace(policy="own"))
    case = tiered({"cache": {"evictions": evicted}}, scenario=scenario)
    assert case.tiers == tier_names
    assert (tiers.policy_without_choice(case) is None) is has_choice
    assert (tiers.write_policy_without_choice(case) is None) is (len(tier_names) > 1)


@pytest.mark.parametrize(
    ("changes", "span_s", "words"),
    [([], 10, "kept 2 to 2 machines in service: 3 ordered, 1 released, 1,230 machine-seconds, 24.6 % of keeping 500."),
     (["serves", "serves", "drains"], 0, "kept 2 to 4 machines in service: 3 ordered, 1 released, 1,230 machine-seconds."),
     (["ordered", "drains", "off", "serves"], 10, "kept 1 to 2 machines in service: 3 ordered, 1 released, 1,230 machine-seconds, 24.6 % of keeping 500.")],
)  # fmt: skip
def test_a_fleet_is_compared_with_its_largest_size_all_the_time(changes, span_s, words):
    scaling = SimpleNamespace(first=2, most=500, policy="own")
    scenario = machines(("gpu",), membership=SimpleNamespace(scaling=scaling))
    fleet = {
        "changes": [{"change": one} for one in changes],
        "ordered": 3,
        "released": 1,
        "machine_s": 1230.0,
    }
    rows = {"arrival_ns": np.array([3, 2]) * 10**9, "finish_ns": np.array([3, 2 + span_s]) * 10**9}
    rows["arrival_ns"] = rows["arrival_ns"] if span_s else rows["finish_ns"].max() + 0 * rows["arrival_ns"]
    text = tiers.scaled_fleet(tiered({"fleet": fleet}, rows, scenario))
    assert text == f"The scaling policy (own) {words}"
    none = {name: column[:0] for name, column in rows.items()}
    assert tiers.scaled_fleet(tiered({"fleet": fleet}, none, scenario)) is None


def test_means_of_no_request_are_zero():
    rows = {name: np.array([], np.int64) for name in ("a_ns", "first_token_ns", "arrival_ns")}
    assert (tiered(rows=rows).mean_ms("a_ns"), tiered(rows=rows).ttft_ms) == (0.0, 0.0)
    rows = {
        "a_ns": np.array([1, 4]) * MS,
        "first_token_ns": np.array([9, 9]) * MS,
        "arrival_ns": np.array([2, 6]) * MS,
    }
    assert (tiered(rows=rows).mean_ms("a_ns"), tiered(rows=rows).ttft_ms) == (2.5, 5.0)


def test_small_shares_keep_two_digits():
    shares = {
        0.0: "0.0 %",
        0.0005: "0.1 %",
        0.000499: "0.05 %",
        0.0000123: "0.0012 %",
        0.5: "50.0 %",
        1.0: "100.0 %",
    }
    assert {share: percent(share) for share in shares} == shares


# -- the certainty of figures


def run_of(summary, path="t.jsonl"):
    return SimpleNamespace(summary=summary, scenario={"trace": {"path": path}}, directory="runs/a b")


@pytest.mark.parametrize(
    ("times", "stored", "figures", "lacks"),
    [(None, None, [], False), ({"source": "given"}, None, ["step-times"], True), ({"source": "given"}, {}, ["step-times"], True),
     ({"source": "given"}, {"ttft_p99": None}, ["step-times", "ttft-p99"], False), (None, {"ttft_p99": None}, [], False)],
)  # fmt: skip
def test_figures_are_as_certain_as_the_run_stored_them(times, stored, figures, lacks):
    summary = {"step_times": times, "certainty": stored, "latency": {"ttft": {"p99": 5.0}}}
    found = certain_figures(run_of(summary))
    assert [*found.get(TOPIC, {})] == figures
    assert bool(found) is bool(figures)
    command = {"intervals": "intervals: kvsim explain 'runs/a b' --sensitivity"} if lacks else {}
    assert missing_intervals(run_of(summary)) == command
    assert ("from the same input" in str(missing_intervals(run_of(summary, "-")))) is lacks
    assert bool(missing_intervals(SimpleNamespace(summary=summary, scenario={}, directory="r"))) is lacks


# -- loading or computing again


@pytest.mark.parametrize(
    ("shortest", "hits", "words"),
    [(None, [], "Recomputing beats loading from cpu at every length: 16 tokens load in 7 ns and compute in 9 ns. Set fetch.policy=never."),
     (16, [5], "Loading from cpu beats recomputing from the first block (16 tokens)."),
     (1024, [0, 1023, 1024, 1025, 5], "Loading from cpu beats recomputing from 1,024 tokens, on an idle channel; 50.0 % of its hits were shorter."),
     (32, [0], "Loading from cpu beats recomputing from 32 tokens, on an idle channel; 0.0 % of its hits were shorter.")],
)  # fmt: skip
def test_the_break_even_in_words(monkeypatch, shortest, hits, words):
    replica = SimpleNamespace(instant=False)
    settings = SimpleNamespace(
        cache=SimpleNamespace(block_size_tokens=16), machines=[SimpleNamespace(replica=replica)]
    )
    case = SimpleNamespace(tiers=("gpu", "cpu"), scenario=SimpleNamespace(settings=settings),
                           run=SimpleNamespace(finished={"cached_cpu_tokens": np.array(hits, int)}))  # fmt: skip
    monkeypatch.setattr(loading, "break_even_tokens", lambda *_: shortest)
    monkeypatch.setattr(
        loading, "load_ns", lambda _, tier, tokens: 7 if (tier, tokens) == ("cpu", 16) else None
    )
    monkeypatch.setattr(loading, "compute_ns", lambda _, tokens: 9 if tokens == 16 else 0)
    assert loading.break_even("cpu", case) == words
    assert loading.break_even("disk", case) is None
    replica.instant = True
    assert loading.break_even("cpu", case) is None
    replica.instant = False
    monkeypatch.setattr(loading, "load_ns", lambda *_: None)
    assert loading.break_even("cpu", case) is None


@pytest.mark.parametrize("crossing", [1, 2, 3, 4, 5, 7, 8, 9, 100, 4095, 4096, 4097, None])
def test_the_shortest_length_is_found_by_halves(monkeypatch, crossing):
    """Loads take longer below the crossing; at it both take the same, so the next block is the first that gains."""
    monkeypatch.setattr(loading, "load_ns", lambda _, tier, tokens: crossing and 16 * (crossing - 1))
    monkeypatch.setattr(loading, "compute_ns", lambda _, tokens: tokens)
    settings = SimpleNamespace(cache=SimpleNamespace(block_size_tokens=16))
    expected = None if crossing is None or crossing > 4096 else 16 * crossing
    assert loading.break_even_tokens(settings, "cpu") == expected


@pytest.mark.parametrize(("tokens", "chunks"), [(0, []), (9, [(9, 0)]), (10, [(10, 0)]), (25, [(10, 0), (10, 10), (5, 20)])])  # fmt: skip
def test_a_prompt_is_computed_in_chunks_of_the_steps_budget(tokens, chunks):
    seen = []

    def step(batch):
        seen.append(batch)
        return 100 + len(seen)

    machine = SimpleNamespace(
        replica=SimpleNamespace(max_num_batched_tokens=10), step_time=SimpleNamespace(step=step)
    )
    total = loading.compute_ns(SimpleNamespace(machines=[machine]), tokens)
    assert total == sum(101 + n for n in range(len(chunks)))
    assert seen == [StepBatch((chunk,), 0, 0, 0) for chunk in chunks]


# -- the prefix store and sessions

BLOCKS = [(1, 2, 3), (1, 2), (9,), ()]


def traced(names=()):
    """Return a trace of four requests in blocks of 16 tokens; sessions are called after their number."""
    return SimpleNamespace(
        id_offsets=np.cumsum([0, *map(len, BLOCKS)]), block_ids=np.array([n for own in BLOCKS for n in own]),
        id_names=names, block_size=16, session_id=lambda number: f"chat-{number}",
    )  # fmt: skip


STORE = {"request": [1, 0, 0, 2], "prefix_hash": [70, 71, 72, 73], "machine": [1, 1, 0, 0], "length": [32, 48, 32, 16], "blocks": [2, 3, 2, 1],
         "reference_count": [0, 1, 0, 2], "last_access_ns": [2_500_000_000, 0, 10**9, 1], "hits": [4, 4, 4, 9]}  # fmt: skip


@pytest.mark.parametrize(("trace", "found"), [
    (None, [(73, None), (71, None), (72, None), (70, None)]),
    (traced(), [(9, [9]), (3, [1, 2, 3]), (2, [1, 2]), (2, [1, 2])]),
    (traced([*"abcdefghij"]), [("j", ["j"]), ("d", ["b", "c", "d"]), ("c", ["b", "c"]), ("c", ["b", "c"])]),
])  # fmt: skip
def test_the_prefix_store_in_order_of_hits_length_and_machine(monkeypatch, trace, found):
    monkeypatch.setattr(prefixes, "find_trace", lambda run: "")
    rows = prefixes.prefix_rows(
        SimpleNamespace(prefixes={n: np.array(v) for n, v in STORE.items()}, trace=trace)
    )
    order = [3, 1, 2, 0]
    assert [(row["prefix_hash"], row["kv_block_ids"]) for row in rows] == found
    for name in ("machine", "length", "blocks", "reference_count", "hits"):
        assert [row[name] for row in rows] == [STORE[name][k] for k in order]
    assert [row["last_access_time"] for row in rows] == [1e-9, 0.0, 1.0, 2.5]


def test_a_run_without_prefixes_says_so():
    with pytest.raises(UsageError, match=r"run: the run kept no prefixes.*--prefixes"):
        prefixes.prefix_rows(SimpleNamespace(prefixes=None, directory="run"))


@pytest.mark.parametrize(("count", "more"), [(1, ""), (20, ""), (21, "and 1 more: "), (1021, "and 1,001 more: ")])  # fmt: skip
def test_the_text_shows_twenty_prefixes(count, more):
    row = {"prefix_hash": "x" * 20, "machine": 1, "length": 1024, "blocks": 2, "reference_count": 3,
           "last_access_time": 4.5, "hits": 6}  # fmt: skip
    lines = prefixes.prefixes_text([row, *[row | {"prefix_hash": "y" * 21}] * (count - 1)]).splitlines()
    assert lines[0] == f"Global prefix store at the end: {count:,} entries"
    assert lines[2].split() == ["x" * 20, "1", "1,024", "2", "3", "4.500", "s", "6"]
    assert all(line.startswith("y" * 19 + "… ") for line in lines[3 : 2 + min(count, 20)])
    assert lines[2 + min(count, 20) : -1] == ([f"{more}--format json has all"] if more else [])


ROWS = {"request": [0, 1, 2, 3], "session": [5, 5, -1, 5], "turn": [0, 1, 0, 2], "machine": [0, 1, 0, 1], "status": [0, 0, 0, 1],
        "arrival_ns": [10**9, 2 * 10**9, 3 * 10**9, 5 * 10**9], "finish_ns": [9 * 10**9, 4 * 10**9, 4 * 10**9, -1], "input_tokens": [50, 32, 16, 8],
        "output_tokens": [7, 6, 5, 4], "cached_prefix_length_used": [0, 32, 0, 0], "outcome": [0, 1, 0, 0], "decode_machine": [-1, 0, -1, -1],
        "cached_gpu_tokens": [0, 20, 0, 0], "cached_cpu_tokens": [0, 12, 0, 0], "cached_disk_tokens": [0] * 4, "cached_remote_tokens": [0] * 4}  # fmt: skip


def session_run(trace=None, cache=None, missed=None, continued=True):
    causes = [miss_column(cause) for cause in reported_by("timed")]
    rows = ROWS | ({} if missed is None else {name: [missed * (k == 0)] * 4 for k, name in enumerate(causes)})
    words = ("other",) if continued else ("other", "CONVERSATIONAL_MISS_UNEXPECTED_PROMPT")
    events = {
        "detail": CodedText(np.array([0, len(words) - 1], np.int32), words),
        "request": np.array([0, 1]),
    }
    return SimpleNamespace(requests={name: np.array(own) for name, own in rows.items()}, events=events, trace=trace,
                           scenario={} if cache is None else {"cache": cache})  # fmt: skip


@pytest.mark.parametrize("trace", [None, traced()])
@pytest.mark.parametrize("continued", [True, False])
@pytest.mark.parametrize(
    ("cache", "answers"), [(None, (7, 0)), ({"enabled": False}, None), ({"cache_output": False}, (0, 0)), ({"enabled": True}, (7, 0))]
)  # fmt: skip
def test_a_sessions_turns_in_the_order_in_which_they_ended(monkeypatch, trace, continued, cache, answers):
    monkeypatch.setattr(session_cache, "find_trace", lambda run: "")
    run = session_run(trace, cache, continued=continued)
    name = "5" if trace is None else "chat-5"
    turns = session_cache.session_turns(run, name)
    assert [turn.request for turn in turns] == [1, 3, 0]
    second, third, first = session_cache.session_json(name, turns)["turns"]
    for own, k in ((first, 0), (second, 1), (third, 3)):
        assert [own[key] for key in ("turn", "machine", "arrival_ns", "prompt_tokens", "cached_prefix_length", "misses")] == [
            *(ROWS[key][k] for key in ("turn", "machine", "arrival_ns", "input_tokens", "cached_prefix_length_used")), None,
        ]  # fmt: skip
    unexpected = [] if continued else ["CONVERSATIONAL_MISS_UNEXPECTED_PROMPT"]
    assert first["events"] == [OUTCOMES[0]]
    assert second["events"] == [*unexpected, OUTCOMES[1], "FULL_HIT_NO_PREFILL_NEEDED"]
    assert second["cached_tokens"] == {"gpu": 20, "cpu": 12, "disk": 0, "remote": 0}
    assert (third["status"], third["events"], third["left"], third["missed_tokens"]) == (
        "rejected",
        [],
        None,
        0,
    )
    assert [own["missed_tokens"] for own in (first, second)] == [50, 0]
    if answers is None:
        assert first["left"] is second["left"] is None
        return
    for own, k, answer in ((first["left"], 0, answers[0]), (second["left"], 1, answers[1])):
        tokens = ROWS["input_tokens"][k]
        assert own == {
            "session_id": name, "total_tokens_in_cache": tokens + answer, "prompt_part_length": tokens, "response_part_length": answer,
            "associated_sequence_id": str(k), "kv_block_ids": [] if trace is None else [*BLOCKS[k]], "last_update_time": ROWS["finish_ns"][k] / 1e9,
        }  # fmt: skip


@pytest.mark.parametrize(
    ("trace", "name", "line"),
    [(None, "-1", "expected one of 1, such as 5$"), (None, "4", "such as 5$"), (traced(), "chat-6", "such as chat-5; did you mean 'chat-5'"), (traced(), "5", "such as chat-5$")],
)  # fmt: skip
def test_a_session_is_named_as_in_its_trace(monkeypatch, trace, name, line):
    monkeypatch.setattr(session_cache, "find_trace", lambda run: "")
    run = session_run(trace)
    with pytest.raises(UsageError, match=line):
        session_cache.session_turns(run, name)
    run.requests["session"][:] = -1
    with pytest.raises(UsageError, match=r"expected a run with sessions$"):
        session_cache.session_turns(run, name)


@pytest.mark.parametrize(("missed", "continued"), [(None, True), (50, True), (50, False), (0, False)])
def test_a_session_in_lines(monkeypatch, missed, continued):
    monkeypatch.setattr(session_cache, "find_trace", lambda run: "")
    cause = next(iter(reported_by("timed"))).name
    turns = session_cache.session_turns(session_run(missed=missed, continued=continued), "5")
    causes = {} if missed is None or not missed else {cause: missed}
    assert [turn.misses for turn in turns] == [None if missed is None else causes] * 3
    said = [f"missed: {tokens:,} {name}" for name, tokens in causes.items()]
    unexpected = [] if continued else ["CONVERSATIONAL_MISS_UNEXPECTED_PROMPT"]
    lines = [line.split() for line in session_cache.session_text("5", turns).splitlines()]
    assert lines == [line.split() for line in (
        "Session 5: 3 turns",
        "turn request arrives prompt hit missed left machine",
        "1 1 2.000 s 32 32 0 32 1", *unexpected, OUTCOMES[1], "FULL_HIT_NO_PREFILL_NEEDED", *said,
        "2 3 5.000 s 8 0 8 – 1", "rejected",
        "0 0 1.000 s 50 0 50 57 0", OUTCOMES[0], *said,
        "hit: tokens of the cached prefix; left: prompt and answer, cached by the turn",
        *(["causes of misses: run 'kvsim simulate' with --causes"] if missed is None else []),
    )]  # fmt: skip


def test_hits_follow_their_only_event_and_long_names_are_cut():
    turn = session_cache.Turn(
        0, 0, 0, False, 0, 1500, 1200, {"gpu": 0, "cpu": 1000, "disk": 200}, ("HIT",), {}, None
    )
    assert session_cache._details(turn) == ["HIT: 1,000 from cpu, 200 from disk"]
    for length, shown in ((40, "n" * 40), (41, "n" * 39 + "…")):
        assert session_cache.session_text("n" * length, [turn]).startswith(f"Session {shown}: 1 turn\n")
    assert session_cache.session_text("n", []).startswith("Session n: 0 turns\n")
