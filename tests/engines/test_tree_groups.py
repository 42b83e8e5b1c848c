"""The tree's rules over several cache groups: a small model of its own, invariants, closed forms."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.model.kv_groups import KvGroup, KvLayout
from kvcache_sim.serving.settings import ClusterSettings, ReplicaSettings
from kvcache_sim.simulation import RunOptions, simulate
from kvcache_sim.workload.trace import Trace
from support.examples import examples
from support.group_runs import settings_of
from support.small_traces import tree_traces
from support.traces import random_trace


def of_tree(settings: ClusterSettings) -> ClusterSettings:
    """Return the same cluster under the tree's rules."""
    assert settings.cache.groups is not None
    drawn = replace(settings.cache.groups, rules="tree")
    return replace(settings, cache=replace(settings.cache, semantics="tree", groups=drawn))


def alone(settings: ClusterSettings) -> ClusterSettings:
    """Return the same, a request at a time and without time, each prompt in one step."""
    machines = tuple(
        replace(m, replica=replace(m.replica, max_num_batched_tokens=4096, instant=True))
        for m in settings.machines
    )
    groups = settings.cache.groups
    if groups is not None:
        groups = replace(groups, max_num_batched_tokens=4096)
    return replace(settings, machines=machines, cache=replace(settings.cache, groups=groups))


def one_full(block: int) -> GroupSettings:
    return GroupSettings("one group", KvLayout((KvGroup("full", block, 0, (0,)),), 1, 1), 512)


def no_groups(settings: ClusterSettings) -> ClusterSettings:
    """Return the same with the tree without groups."""
    return replace(settings, cache=replace(settings.cache, groups=None, semantics="tree"))


@examples(25)
@given(tree_traces(4, 25), st.integers(0, 12), st.booleans())
def test_one_full_group_is_the_tree_without_groups(trace, spare, output):
    blocks = -(-int((trace.input_tokens + trace.output_tokens).max()) // 4) + spare
    settings = alone(
        of_tree(
            settings_of(
                one_full(4), CacheSettings(cache_output=output), ReplicaSettings(max_num_seqs=8), blocks, 1
            )
        )
    )
    runs = [simulate(s, trace, options=RunOptions(check="full")) for s in (settings, no_groups(settings))]
    hits = [run.requests["cached_prefix_length_used"].tolist() for run in runs]
    assert hits[0] == hits[1]
    for name in ("evictions.gpu", "merged_blocks"):
        assert runs[0].counters[name] == runs[1].counters[name], name


@examples(6)
@given(st.integers(1, 99), st.sampled_from([60, 120, 400]))
def test_one_full_group_in_time_hits_what_the_tree_hits_where_requests_come_alone(seed, blocks):
    trace = random_trace(seed, requests=30)
    gaps, no_member = np.arange(len(trace), dtype=np.int64) * 10**12, np.full(len(trace), -1, np.int32)
    # turns of this trace do not repeat what was answered, so no session names its blocks
    trace = replace(trace, arrival_ns=gaps, session=no_member)
    settings = of_tree(settings_of(one_full(16), CacheSettings(), ReplicaSettings(max_num_seqs=8), blocks, 1))
    runs = [simulate(s, trace, options=RunOptions(check="full")) for s in (settings, no_groups(settings))]
    for column in ("status", "cached_prefix_length_used", "first_token_ns", "finish_ns"):
        assert runs[0].requests[column].tolist() == runs[1].requests[column].tolist(), column


@examples(10)
@given(tree_traces(4, 20), st.integers(1, 30), st.sampled_from([0, None, 8]))
def test_without_a_bound_windows_beyond_every_prompt_hit_all_and_smaller_ones_never_more(
    trace, short, interval
):
    hits = []
    for reach in (1 << 20, short):
        full, window = KvGroup("full", 4, 0, (0,)), KvGroup("sliding", 4, reach, (1,))
        drawn = GroupSettings("two", KvLayout((full, window), 1, 1), 4096, interval)
        run = simulate(
            alone(of_tree(settings_of(drawn, CacheSettings(), ReplicaSettings(max_num_seqs=8), 90_000, 1))),
            trace,
        )
        hits.append(run.requests["cached_prefix_length_used"])
    full_run = simulate(
        alone(of_tree(settings_of(one_full(4), CacheSettings(), ReplicaSettings(max_num_seqs=8), 90_000, 1))),
        trace,
    )
    if interval is None:
        assert (hits[0] == full_run.requests["cached_prefix_length_used"]).all()
    assert (hits[0] <= full_run.requests["cached_prefix_length_used"]).all()
    assert (hits[1] <= hits[0]).all() or interval is not None


class SmallModel:
    """A model of a pool for prompts that come one at a time, each in one step: sets of prefixes and their
    ages.

    A block is named by its group and all that comes before its end. Nothing here knows tables or queues.
    """

    def __init__(self, layout: KvLayout, interval: int | None, capacity: int) -> None:
        self.groups, self.align, self.interval = layout.groups, layout.scheduler_block_size, interval
        self.capacity = capacity
        #: By block (age, minus its end, group): the least leaves first.
        self.kept: dict[tuple[int, tuple[int, ...]], tuple[int, int, int]] = {}
        self.clock, self.evicted = count(1), 0

    def _needs(self, number: int, end: int) -> Iterator[int]:
        """Yield the ends of the blocks that a group must have to continue from ``end``."""
        group = self.groups[number]
        size = group.block_size_tokens
        if group.kind == "full":
            yield from range(size, end + 1, size)
        elif group.kind == "linear":
            yield end
        elif group.kind == "chunked":
            yield from range(end // group.reach_tokens * group.reach_tokens + size, end + 1, size)
        else:
            first = max(0, end - group.reach_tokens + 1)  # the oldest token that the next one attends to
            ends = [e for e in range(size, end + 1, size) if e > first]
            yield from ends or [end]

    def _can(self, number: int, units: tuple[int, ...], end: int) -> bool:
        return all((number, units[:e]) in self.kept for e in self._needs(number, end))

    def serve(self, units: tuple[int, ...]) -> int:
        """Serve a prompt, a number a token; return its hit."""
        prompt, numbers = len(units), range(len(self.groups))
        ends = range((prompt - 1) // self.align * self.align, 0, -self.align)
        hit = next((e for e in ends if all(self._can(n, units, e) for n in numbers)), 0)
        # a window or chunk is only looked for as far as full attention goes
        full = next(n for n in numbers if self.groups[n].kind == "full")
        best = next((e for e in ends if self._can(full, units, e)), 0)
        used = {(n, units[:e]) for n in numbers for e in self._needs(n, hit) if hit}
        taken, kept = 0, set[tuple[int, tuple[int, ...]]]()
        for n, group in enumerate(self.groups):
            size = group.block_size_tokens
            taken += 1 if group.kind == "linear" and hit < prompt else -(-prompt // size) - hit // size
            whole = range(hit // size * size + size, prompt // self.align * self.align + 1, size)
            kept |= {(n, units[:e]) for e in whole if self._worth(n, e, prompt, best if best > hit else 0)}
        idle = sorted((self.kept[block], block) for block in self.kept if block not in used)
        for _, block in idle[: max(0, len(self.kept) + taken - self.capacity)]:
            del self.kept[block]
            self.evicted += 1
        age = next(self.clock)
        for number, name in used | kept:
            self.kept[number, name] = (age, -len(name), number)
        return hit

    def _worth(self, number: int, end: int, prompt: int, junction: int) -> bool:
        """Return True if a computed block is kept; states exist only at the end of a step: at the prompt's
        end."""
        group = self.groups[number]
        if group.kind in ("full", "chunked"):
            return True
        stops = {(prompt - 1) // self.align * self.align, junction // self.align * self.align}
        every = self.align if self.interval is None else self.interval
        if every:  # the next one too, which this prompt may not reach
            stops |= set(range(every, prompt + every + 1, every))
        return any(end in self._needs(number, stop) for stop in stops if stop)


@st.composite
def kinds(draw) -> KvLayout:
    """Full attention with windows or chunks, of blocks of 4 or 8 tokens, in any order."""
    sizes = st.sampled_from([4, 8])
    others = draw(st.lists(st.tuples(st.sampled_from(["sliding", "chunked"]), sizes), min_size=1, max_size=2))
    made = [KvGroup("full", draw(sizes), 0, (0,))]
    for layer, (kind, size) in enumerate(others, 1):
        reach = draw(st.integers(2, 20)) if kind == "sliding" else 8 * draw(st.integers(1, 3))
        made.append(KvGroup(kind, size, reach, (layer,)))
    return KvLayout(tuple(draw(st.permutations(made))), 1, 1)


@examples(60)
@given(
    layout=kinds(),
    trace=tree_traces(4, 25),
    spare=st.integers(0, 40),
    interval=st.sampled_from([0, None, 8, 24]),
)
def test_prompts_that_come_alone_meet_a_small_model(layout, trace, spare, interval):
    trace = replace(trace, output_tokens=np.ones_like(trace.output_tokens))
    blocks = spare + sum(
        -(-int(trace.input_tokens.max()) // group.block_size_tokens) for group in layout.groups
    )
    drawn = GroupSettings("drawn", layout, 4096, interval)
    settings = alone(of_tree(settings_of(drawn, CacheSettings(), ReplicaSettings(max_num_seqs=8), blocks, 1)))
    run = simulate(settings, trace, options=RunOptions(check="full"))
    model = SmallModel(layout, interval, blocks)
    hits = [model.serve(units) for units in prompts(trace)]
    assert run.requests["cached_prefix_length_used"].tolist() == hits
    assert run.counters["evictions.gpu"] == model.evicted


def prompts(trace: Trace) -> Iterator[tuple[int, ...]]:
    """Yield each prompt as a number per token: tokens beyond the trace's whole blocks are unique."""
    own = count(1 << 40)
    for request, tokens in enumerate(trace.input_tokens.tolist()):
        ids = trace.block_ids[trace.id_offsets[request] : trace.id_offsets[request + 1]].tolist()
        named = [block * trace.block_size + k for block in ids for k in range(trace.block_size)]
        whole = tokens // trace.block_size * trace.block_size
        yield (*named[: min(whole, tokens)], *(next(own) for _ in range(tokens - min(whole, len(named)))))
