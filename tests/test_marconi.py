"""Marconi's states: worked cases, a model of plain sets beside the tree, the sign of its claim with its seeds."""

from __future__ import annotations

import json
import os
import random

import pytest
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.errors import UsageError
from kvcache_sim.replay.papers.hybrid_cost import HybridCost
from kvcache_sim.replay.papers.marconi import Exchange, StateTree, utilities
from kvcache_sim.replay.papers.marconi_replay import ALPHAS, exchanges_of, marconi_beside, tuned
from kvcache_sim.sweeps.paper_workload import paper_workload
from kvcache_sim.workload.readers.read import read_trace
from shared_files import shared

COST = HybridCost()
TOKENS = 64
BLOCK = TOKENS * COST.token_bytes
MANY = 10**15


def test_the_worked_case_of_the_rule():
    ages, efficiencies = [1, 2, 4], [1.0, 3.0, 5.0]
    assert utilities(ages, efficiencies, 1) == pytest.approx([1, 5 / 6, 1])
    assert utilities(ages, efficiencies, 2) == pytest.approx([1, 4 / 3, 2])
    worst = [min(range(3), key=utilities(ages, efficiencies, alpha).__getitem__) for alpha in (0, 1, 2)]
    assert worst == [2, 1, 0]
    assert utilities([3, 3], [7.0, 7.0], 1) == [2, 2]


def test_bytes_and_flops_of_the_papers_model():
    # 10,000 tokens with a state every 16: 17.4 GB, 3.3 times a Transformer of 32 attention layers
    held = 625 * COST.state_bytes + 10_000 * COST.token_bytes
    assert round(held / 1e9, 1) == 17.4
    assert round(held / (10_000 * HybridCost(attention_layers=32).token_bytes), 1) == 3.3
    small = HybridCost(1, 1, 1, 2, 3, 1)
    # of 5 tokens: attention 8·5·4 + 4·25·2, states 12·5·4 + 16·5·2·3 + 10·5·2, MLP 16·5·4
    assert small.flops(5) == 160 + 200 + 240 + 480 + 100 + 320
    assert (small.token_bytes, small.state_bytes) == (4, 2 * 3 + 4 * 2 * 2)
    assert small.efficiency(2, 5) == (1500 - (64 + 32 + 96 + 192 + 40 + 128)) / (22 + 5 * 4)


def states(tree):
    """Return the depths at which a state is kept, with the last block before each."""
    return sorted((node.depth, node.ids[-1]) for node in tree._nodes if node.state)


def test_states_are_kept_at_branches_of_prompts_and_at_ends():
    tree = StateTree(MANY, TOKENS, COST)
    assert tree.serve(Exchange(3, [1, 2, 3, 4])) == 0
    assert states(tree) == [(4, 4)]
    # two blocks are known, but no state is kept behind them; now there is one
    assert tree.serve(Exchange(3, [1, 2, 5, 6])) == 0
    assert states(tree) == [(2, 2), (4, 4), (4, 6)]
    assert tree.serve(Exchange(3, [1, 2, 7])) == 2
    # an answer that leaves a known one makes no state at the branch, a prompt that leaves there does
    assert tree.serve(Exchange(4, [1, 2, 3, 4, 8, 9])) == 4
    assert tree.serve(Exchange(4, [1, 2, 3, 4, 8, 10])) == 4
    assert states(tree) == [(2, 2), (3, 7), (4, 4), (4, 6), (6, 9), (6, 10)]
    assert tree.serve(Exchange(6, [1, 2, 3, 4, 8, 11])) == 4
    assert (5, 8) in states(tree)
    assert tree._bytes == 11 * BLOCK + 8 * COST.state_bytes


def test_what_goes_by_age_and_what_by_flops_a_byte():
    def left(alpha):
        tree = StateTree(23 * BLOCK + 2 * COST.state_bytes, TOKENS, COST, alpha)
        for ids in ([*range(20)], [100, 101], [200, 201]):
            tree.serve(Exchange(len(ids), ids))
        return states(tree)

    # the long one is older, and saves more a byte of it: the KV of 20 blocks is as large as three states
    assert COST.efficiency(0, 20 * TOKENS) > COST.efficiency(0, 2 * TOKENS)
    assert left(0) == [(2, 101), (2, 201)]
    assert left(2) == [(2, 201), (20, 19)]


def test_of_equal_worth_the_one_unused_the_longest_goes():
    # Of two candidates the newer one is worth 1 + 0 and the one with more FLOPs a byte 0 + alpha: equal at 1.
    tree = StateTree(23 * BLOCK + 2 * COST.state_bytes, TOKENS, COST, 1)
    for ids in ([100, 101], [*range(20)], [100, 101], [200, 201]):
        tree.serve(Exchange(len(ids), ids))
    assert states(tree) == [(2, 101), (2, 201)]


def test_a_node_with_one_child_frees_its_state_alone():
    tree = StateTree(5 * BLOCK + 2 * COST.state_bytes, TOKENS, COST)
    tree.serve(Exchange(2, [1, 2]))
    tree.serve(Exchange(3, [1, 2, 3]))
    tree.serve(Exchange(2, [8, 9]))
    assert states(tree) == [(2, 9), (3, 3)]
    assert tree._bytes == 5 * BLOCK + 2 * COST.state_bytes
    assert tree.serve(Exchange(2, [1, 2])) == 0  # known, but its state has gone


class Sets:
    """The same rules on sets: which prefixes have KV, and which a state, last used when."""

    def __init__(self, capacity, alpha):
        self.capacity, self.alpha, self.kv, self.last, self.now = capacity, alpha, set(), {}, 0

    def behind(self, prefix):
        return [p for p in self.kv if len(p) == len(prefix) + 1 and p[:-1] == prefix]

    def above(self, prefix):
        depth = len(prefix) - 1
        while depth and prefix[:depth] not in self.last and len(self.behind(prefix[:depth])) < 2:
            depth -= 1
        return depth

    def serve(self, prompt_blocks, ids):
        self.now += 1
        ids = tuple(ids)
        found = max((k for k in range(1, prompt_blocks + 1) if ids[:k] in self.last), default=0)
        known = max((k for k in range(1, prompt_blocks + 1) if ids[:k] in self.kv), default=0)
        if found:
            self.last[ids[:found]] = self.now
        if known:
            self.last.setdefault(ids[:known], self.now)
        self.kv |= {ids[: k + 1] for k in range(len(ids))}
        self.last[ids] = self.now
        while len(self.kv) * BLOCK + len(self.last) * COST.state_bytes > self.capacity:
            free = [p for p in self.last if len(self.behind(p)) < 2 and ids[: len(p)] != p]
            saved = [COST.efficiency(self.above(p) * TOKENS, len(p) * TOKENS) for p in free]
            worth = utilities([self.now - self.last[p] for p in free], saved, self.alpha)
            self.drop(min(zip(worth, free, strict=True), key=lambda w: (w[0], self.last[w[1]], len(w[1])))[1])
        return found

    def drop(self, prefix):
        used, below = self.last[prefix], self.behind(prefix)
        if not below:
            stop = self.above(prefix)
            del self.last[prefix]
            self.kv -= {prefix[:k] for k in range(stop + 1, len(prefix) + 1)}
            return
        del self.last[prefix]
        while len(below) == 1 and below[0] not in self.last:
            below = self.behind(below[0])
        if len(below) == 1:
            self.last[below[0]] = max(self.last[below[0]], used)


def random_exchanges(seed):
    draw = random.Random(seed)
    rows, fresh = [[0]], 1
    for _ in range(60):
        base = draw.choice(rows[-8:])
        row = base[: draw.randint(1, len(base))]
        grow = draw.randint(0, 6)
        row = (
            row + [draw.randint(1, 3) + 1000 * len(row)] * draw.randint(0, 1) + [*range(fresh, fresh + grow)]
        )
        fresh += grow
        rows.append(row)
        yield Exchange(draw.randint(0, len(row)), row)


@pytest.mark.parametrize("seed", range(int(os.environ.get("KVSIM_EXAMPLES", "30"))))
def test_the_tree_is_the_model_of_sets(seed):
    draw = random.Random(-seed - 1)
    exchanges = list(random_exchanges(seed))
    longest = max(len(each.ids) for each in exchanges)
    capacity = longest * (BLOCK + COST.state_bytes) // draw.choice([1, 1, 2])
    alpha = draw.choice([0, 0.3, 1, 2])
    tree, sets = StateTree(capacity, TOKENS, COST, alpha), Sets(capacity, alpha)
    for each in exchanges:
        held = len(each.ids) * BLOCK + (len(each.ids) + 1) * COST.state_bytes
        if held > capacity:
            continue
        assert tree.serve(each) == sets.serve(*each)
        assert tree._bytes == len(sets.kv) * BLOCK + len(sets.last) * COST.state_bytes <= capacity
        assert len(states(tree)) == len(sets.last)


def test_alpha_is_what_would_have_hit_most():
    # a long prompt comes every eighth time between short ones that come once: by age it has always gone
    long, rows = [*range(1, 101)], []
    for k in range(400):
        rows.append(Exchange(100, long) if k % 8 == 0 else Exchange(8, [*range(1000 + 8 * k, 1008 + 8 * k)]))
    capacity = 140 * BLOCK + 4 * COST.state_bytes
    old = StateTree(capacity, TOKENS, COST)
    assert sum(old.serve(each) for each in rows) == 0
    hits, alpha = tuned(rows, capacity, TOKENS)
    first = next(k for k in range(400) if sum(len(r.ids) for r in rows[: k + 1]) * BLOCK
                 + (k + 1) * COST.state_bytes > capacity)  # fmt: skip
    seen = rows[: first + 1 + 5 * first]
    trials = [StateTree(capacity, TOKENS, COST, trial) for trial in ALPHAS]
    totals = [sum(tree.serve(each) for each in seen) for tree in trials]
    assert alpha == ALPHAS[totals.index(max(totals))] > 0
    assert not any(hits[: len(seen)])
    assert sum(hits[len(seen) :]) > 0


def test_answers_are_known_by_the_next_turn():
    trace = paper_workload(2, 200)
    rows = sorted(range(200), key=lambda k: (trace.arrival_ns[k], trace.turn[k], k))
    sizes = list(zip(trace.input_tokens.tolist(), trace.output_tokens.tolist(), strict=True))
    turns = {(trace.session[k], trace.turn[k]): k for k in range(200)}
    ids = [trace.block_ids[trace.id_offsets[k] : trace.id_offsets[k + 1]].tolist() for k in range(200)]
    longer = 0
    for k, each in zip(rows, exchanges_of(trace), strict=True):
        prompt, answer = sizes[k]
        following = turns.get((trace.session[k], trace.turn[k] + 1))
        assert each.prompt_blocks == prompt // 64
        if following is None:
            assert each.ids == ids[k][: prompt // 64]
        else:
            assert each.ids == ids[following][: (prompt + answer) // 64]
        longer += len(each.ids) > each.prompt_blocks
    assert longer > 60


def test_three_conversations_by_hand(tmp_path):
    rows = [("a", 2, 1, [1, 2]), ("a", 4, 0, [1, 2, 3, 4]), ("c", 2, 1, [1, 2]), ("c", 3, 0, [9, 8, 7])]
    rows += [("b", 2, 1, [1, 2]), ("b", 4, 0, [1, 2, 3, 5])]
    lines = [
        {
            "timestamp": 1000 * k,
            "input_length": 512 * prompt,
            "output_length": 512 * answer + 1,
            "hash_ids": ids,
            "session_id": session,
        }
        for k, (session, prompt, answer, ids) in enumerate(rows)
    ]
    path = tmp_path / "three.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    trace = read_trace(path)
    known = [(each.prompt_blocks, len(each.ids)) for each in exchanges_of(trace)]
    # c's second prompt is another one, so the answer before it is not known
    assert known == [(2, 3), (4, 4), (2, 2), (3, 3), (2, 3), (4, 4)]
    found = marconi_beside(trace, 20)
    # of c's second prompt nothing, of b's both blocks and then three of four: an answer is no hit
    assert (found.every_block, found.branches_lru, found.marconi) == (5 / 9, 5 / 9, 5 / 9)


#: By seed: a state every block, Marconi's states with LRU, and Marconi; 800 blocks of 64 tokens.
SIGNS = {2: (0.4129, 0.5851, 0.5851), 3: (0.3572, 0.5182, 0.5182)}


@pytest.mark.parametrize("seed", [2, 3])
def test_the_sign_of_the_claim(seed):
    found = marconi_beside(paper_workload(seed), 800)
    rates = (found.every_block, found.branches_lru, found.marconi)
    assert rates == pytest.approx(SIGNS[seed], abs=5e-5)
    assert found.marconi > found.every_block
    assert found.alpha == 0  # eviction by FLOPs a byte would have hit less, and is not used


def test_two_traces_one_of_them_the_other_way():
    chats = read_trace(shared("traces/sharegpt_llama31_8b_300_b16.jsonl"))
    found = marconi_beside(chats, 500)
    assert (found.every_block, found.branches_lru, found.marconi) == pytest.approx(
        (0.0083, 0.0870, 0.0870), abs=5e-5
    )
    # alpha is settled on few requests and does harm later: less than a state every block
    found = marconi_beside(read_trace(shared("traces/conversation_trace.jsonl")), 3000)
    assert (found.every_block, found.branches_lru, found.marconi) == pytest.approx(
        (0.0704, 0.1230, 0.0501), abs=5e-5
    )
    assert found.alpha == 1.1


def test_one_command(capsys, monkeypatch):
    monkeypatch.setattr("kvcache_sim.sweeps.marconi_study.SEEDS", (2,))
    assert kvsim(["study", "marconi", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["holds"], found["admission_holds"], found["eviction_holds"]) == (True, True, False)
    assert found["runs"][0]["seed"] == 2
    assert kvsim(["study", "marconi"]) == 0
    verdict = (
        "the sign of the paper; states at branches and ends: more hits, eviction by FLOPs a byte: no more"
    )
    assert capsys.readouterr().out.splitlines()[-1] == verdict
    with pytest.raises(UsageError, match="a prompt does not fit"):
        marconi_beside(paper_workload(2, 100), 5)
