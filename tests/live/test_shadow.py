"""Look-ups of engines seen through their KV events, and what other caches would have found."""

from collections import OrderedDict
from dataclasses import replace
from itertools import count, islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.extras.live.shadow.caches import OtherCache, Share, engine_share, other_shares
from kvcache_sim.extras.live.shadow.causes import missed_blocks
from kvcache_sim.extras.live.shadow.following import Following
from kvcache_sim.extras.live.shadow.watch import Compared, line
from kvcache_sim.workload.imports.kv_batch import KvBatch, KvEvent
from support.examples import examples

MS = 1_000_000


def stored(at_ms: int, hashes: list[int], parent: int | None = None, medium: str = "GPU") -> KvBatch:
    return KvBatch(at_ms * MS, (KvEvent("stored", tuple(hashes), parent, 16, medium),))


def removed(at_ms: int, *hashes: int, medium: str = "GPU") -> KvBatch:
    return KvBatch(at_ms * MS, (KvEvent("removed", hashes, None, 0, medium),))


def test_a_restart_forgets_the_blocks_of_each_rank_of_its_engine():
    following = Following(10**9)
    for source, rank in (("a", 0), ("a", 1), ("b", 0)):
        following.take(source, replace(stored(0, [1, 2]), rank=rank))
    following.restarted("a")
    held = {name: engine.state.held for name, engine in following.engines.items()}
    assert held == {"a": 0, "a rank 1": 0, "b": 2}


@pytest.mark.parametrize(("most", "kept", "counted"), [(24, 6, "12"), (13, 3, "4")])
def test_engines_keep_equal_shares_and_look_ups_that_warm_are_not_counted(most, kept, counted):
    following = Following(most)
    for name in "ab":
        for k in range(6):
            following.take(name, stored(10_000 * k, [10 * k, 10 * k + 1]))
    following.forget()
    assert [len(engine.look_ups) for engine in following.engines.values()] == [kept, kept]
    assert line(following, Compared(()), "now").split()[-2] == counted


class SmallEngine:
    """An LRU cache of single blocks above another one, and the events that it would publish, a request at a time."""

    def __init__(self, blocks: int, below: int) -> None:
        self.sizes, self.now_ms = {"GPU": blocks, "CPU": below}, 0
        self.kept: dict[str, OrderedDict[int, int | None]] = {"GPU": OrderedDict(), "CPU": OrderedDict()}
        self.batches: list[KvBatch] = []
        self.most, self.evicted = 0, False

    def publish(self, *batches: KvBatch) -> None:
        self.batches += batches
        self.most = max(self.most, len(self.kept["GPU"]))

    def store(self, medium: str, blocks: list[int], parent: int | None) -> int:
        """Return how many of the blocks the cache below has once there is space for them."""
        kept, first = self.kept[medium], parent
        while len(kept) + len(blocks) > self.sizes[medium]:
            gone, before = kept.popitem(last=False)
            if medium == "GPU":
                self.evicted = True
                if self.sizes["CPU"] and gone not in self.kept["CPU"]:
                    self.store("CPU", [gone], before)
            self.publish(removed(self.now_ms, gone, medium=medium))
        for block in blocks:
            kept[block], parent = parent, block
        self.publish(stored(self.now_ms, blocks, first, medium))
        return sum(block in self.kept["CPU"] for block in blocks)

    def serve(self, prompt: list[int], answer: list[int], chunk: int, gaps_ms: list[int]) -> tuple:
        """Return what a look-up of the prompt finds: (blocks, found, length of the prompt, found below)."""
        gpu = self.kept["GPU"]
        found = next((n for n, block in enumerate(prompt) if block not in gpu), len(prompt))
        below = 0
        for block in reversed(prompt[:found]):
            gpu.move_to_end(block)
        first = (len(prompt) - found - 1) % chunk + 1 if chunk > 1 else len(prompt) - found
        cuts = [found, *range(found + first, len(prompt) + 1, chunk)]
        pieces = [prompt[a:b] for a, b in pairwise(cuts)] + [[block] for block in answer]
        parent = prompt[found - 1] if found else None
        for n, piece in enumerate(pieces):
            self.now_ms += gaps_ms[n % len(gaps_ms)] if n else 0
            below += self.store("GPU", piece, parent)
            parent = piece[-1]
        self.now_ms += 2001
        return [*prompt, *answer], found, len(prompt), below


@examples(60)
@given(st.data())
def test_the_events_of_a_small_engine_are_its_look_ups(data):
    """Chats that branch: each prompt is an earlier sequence or the start of one, and blocks of its own."""
    most = data.draw(st.integers(0, 60))
    engine = SmallEngine(data.draw(st.integers(16, 40)), data.draw(st.sampled_from([0, 5, 30])))
    follows = Following(most)
    sequences: list[list[int]] = [[]]
    fresh, expected = count(), []
    for _ in range(data.draw(st.integers(1, 12))):
        before = data.draw(st.sampled_from(sequences))
        before = before[: data.draw(st.integers(0, min(len(before), 10)))]
        # chunks behind the first have two blocks or more: a single one is taken for an answer's
        own, chunk = data.draw(st.integers(1, 4)), data.draw(st.integers(2, 3))
        own += -own % chunk
        prompt = [*before, *islice(fresh, own)]
        answer = list(islice(fresh, data.draw(st.integers(0, 3))))
        gaps = data.draw(st.lists(st.sampled_from([0, 1, 1999, 2000]), min_size=1, max_size=3))
        missing = len(prompt) - next(
            (n for n, b in enumerate(prompt) if b not in engine.kept["GPU"]), len(prompt)
        )
        expected.append(engine.serve(prompt, answer, chunk if missing % chunk == 0 else len(prompt), gaps))
        sequences.append([*prompt, *answer])
    for batch in engine.batches:
        follows.take("e", batch)
    [own] = follows.engines.values()
    assert [(each.blocks, each.found, each.prompt, each.found_below) for each in own.look_ups] == expected
    state = own.state
    assert (state.held, state.most_held) == (len(engine.kept["GPU"]), engine.most)
    assert state.has_evicted == engine.evicted
    # forgotten lookups, and the third that only fills the caches
    follows.forget()
    kept = expected
    while sum(len(each[0]) for each in kept) > most and len(kept) > 1:
        kept = kept[1:]
    counted = kept[len(kept) // 3 :] if len(kept) < len(expected) else kept
    assert own.forgotten == len(expected) - len(kept)
    assert [each.blocks for each in own.look_ups] == [each[0] for each in kept]
    asked = sum(each[2] for each in counted)
    assert engine_share(own) == Share(sum(each[1] for each in counted), asked)
    assert engine_share(own, below=True) == Share(sum(each[3] for each in counted), asked)
    seen, unbounded, fresh_blocks = set(), 0, 0
    for n, (blocks, _, prompt_blocks, _) in enumerate(kept):
        hit = next((k for k, block in enumerate(blocks) if block not in seen), len(blocks))
        fresh_blocks += max(prompt_blocks - hit, 0) if n >= len(kept) - len(counted) else 0
        unbounded += min(hit, prompt_blocks) if n >= len(kept) - len(counted) else 0
        seen |= set(blocks)
    missed = missed_blocks(own)
    assert sum(missed.values()) == asked - sum(each[1] + each[3] for each in counted)
    if (
        not engine.sizes["CPU"] and kept is expected
    ):  # nothing new was computed before: only what was evicted comes again
        lost = missed.get("evicted" if engine.evicted else "not_admitted", 0)
        assert (missed.get("never_seen", 0) + missed.get("diverged", 0), lost) == (
            fresh_blocks,
            sum(missed.values()) - fresh_blocks,
        )
    others = [OtherCache("u", "unbounded")]
    others += [OtherCache("all", more_blocks=len(seen)), OtherCache("x", times=len(seen))]
    others += [OtherCache("twice", times=2), OtherCache("9 more", more_blocks=9), OtherCache("none", times=0)]
    *alike, twice, more, none = other_shares(own, 9, others)
    assert alike == [Share(unbounded, asked)] * 3
    assert none.asked == more.asked == asked
    assert none.found <= twice.found == more.found <= unbounded
