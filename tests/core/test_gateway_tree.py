"""The gateway's tree against a tree without edges: a table of the machines that were sent each whole
prefix."""

import numpy as np
import pytest
from fleets import ID_TOKENS, Fleet
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.serving.router.cache_aware import GatewayTree

seeds = st.integers(0, 2**32 - 1)


class Table:
    """The rules of sgl-model-gateway's tree.rs over prefixes: a node is a prefix at which something ends or parts.

    A prefix has its creator, the epochs of its machines, and its number; its parent is the longest shorter one.
    """

    def __init__(self, machines):
        self.nodes = {(): {"epochs": {}, "owner": None, "number": 1}}
        self.count, self.epoch = 1, 0
        for machine in range(machines):
            self.insert((), machine)

    def tick(self):
        self.epoch += 1
        return self.epoch - 1

    def parent(self, prefix):
        return max((p for p in self.nodes if len(p) < len(prefix) and prefix[: len(p)] == p), key=len)

    def children(self, prefix):
        return [p for p in self.nodes if p and p != prefix and self.parent(p) == prefix]

    def below(self, text, at):
        """Return the child of ``text[:at]`` that continues as the text does."""
        return next((c for c in self.children(text[:at]) if c[: at + 1] == text[: at + 1]), None)

    def match(self, text):
        at, node = 0, ()
        while at < len(text) and (child := self.below(text, at)) is not None:
            shared = next(
                (k for k in range(at, len(child)) if k >= len(text) or child[k] != text[k]), len(child)
            )
            at, node = shared, child
            if shared < len(child):
                break
        here = self.nodes[node]
        if here["owner"] not in here["epochs"]:
            here["owner"] = min(here["epochs"], default=None)
        epoch = self.tick()
        if epoch % 8 == 0 and here["owner"] is not None:
            here["epochs"][here["owner"]] = epoch
        return at, here["owner"] or 0

    def new(self, prefix, epochs, owner):
        self.count += 1
        self.nodes[prefix] = {"epochs": epochs, "owner": owner, "number": self.count}

    def insert(self, text, machine):
        at = 0
        self.nodes[()]["epochs"].setdefault(machine, 0)
        while at < len(text):
            child = self.below(text, at)
            if child is None:
                child = text
                self.new(text, {}, machine)
            shared = next(
                (k for k in range(at, len(child)) if k >= len(text) or child[k] != text[k]), len(child)
            )
            if shared < len(child):
                self.new(child[:shared], dict(self.nodes[child]["epochs"]), self.nodes[child]["owner"])
            at = shared
            self.nodes[text[:at]]["epochs"].setdefault(machine, 0)
        self.nodes[text]["epochs"][machine] = self.tick()

    def size(self, machine):
        held = [p for p, node in self.nodes.items() if p and machine in node["epochs"]]
        return sum(len(p) - len(self.parent(p)) for p in held)

    def evict(self, most):
        while True:
            leaves = [
                (node["epochs"][m], m, node["number"], p)
                for p, node in self.nodes.items()
                for m in node["epochs"]
                if self.size(m) > most and not any(m in self.nodes[c]["epochs"] for c in self.children(p))
            ]
            if not leaves:
                return
            _, machine, _, prefix = min(leaves)
            del self.nodes[prefix]["epochs"][machine]
            if prefix and not self.nodes[prefix]["epochs"] and not self.children(prefix):
                del self.nodes[prefix]


@given(seeds)
def test_matches_insertions_and_evictions(seed):
    draw = np.random.default_rng(seed)
    machines = int(draw.integers(1, 5))
    tree, table = GatewayTree(machines), Table(machines)
    texts = [()]
    for _ in range(60):
        base = texts[int(draw.integers(len(texts)))]
        text = (
            *base[: int(draw.integers(len(base) + 1))],
            *draw.integers(0, 3, draw.integers(0, 4)).tolist(),
        )
        texts.append(text)
        assert tuple(tree.match([*text])) == table.match(text)
        machine = int(draw.integers(machines))
        tree.insert([*text], machine)
        table.insert(text, machine)
        if draw.random() < 0.15:
            most = int(draw.integers(0, 12))
            tree.evict(most)
            table.evict(most)
        assert tree.sizes == [table.size(m) for m in range(machines)]


@given(seeds, st.sampled_from([0, 3, 64]), st.sampled_from([0.0, 0.3, 0.5]), st.sampled_from([None, 24]))
def test_the_gateways_choices(seed, absolute, threshold, index_blocks):
    """cache_aware.rs over the table: uneven loads, the owner of a long enough match, or the least load."""
    fleet = Fleet(seed)
    interval = 60 * 10**9
    made = fleet.router(
        "cache-aware",
        index_kind="gateway-tree",
        balance_abs_threshold=absolute,
        cache_threshold=threshold,
        index_blocks=index_blocks,
        index_eviction_interval_ns=interval,
    )
    table, processed, swept = Table(fleet.count), [0] * fleet.count, 0
    most_ids = (index_blocks * 16 if index_blocks else 1 << 26) // ID_TOKENS
    for _ in range(40):
        number = int(fleet.draw.integers(len(fleet.rows)))
        fleet.shake()
        sequence = fleet.request(number)
        if fleet.now_ns // interval > swept:
            swept = fleet.now_ns // interval
            table.evict(most_ids)
        loads = [m.requests for m in fleet.machines]
        least = min(range(fleet.count), key=lambda m: (loads[m], processed[m], m))
        text = tuple(fleet.rows[number])
        expected = least
        if not (max(loads) - min(loads) > absolute and max(loads) > 1.5 * min(loads)):
            matched, owner = table.match(text)
            if min(matched * ID_TOKENS, sequence.prompt_num_tokens) / sequence.prompt_num_tokens > threshold:
                expected = owner
        table.insert(text, expected)
        processed[expected] += 1
        assert made.choose(sequence) == expected


def test_the_first_to_be_sent_a_prefix_is_asked_until_it_is_forgotten():
    tree = GatewayTree(3)
    tree.insert([1, 2, 3], 2)
    tree.insert([1, 2, 3], 0)
    assert tree.match([1, 2, 3, 4]) == (3, 2)
    assert tree.match([1, 2, 9]) == (2, 2)  # a part of an edge belongs to the machine that made the edge
    assert tree.match([8]).ids == 0
    tree.insert([1, 2, 3], 1)
    tree.evict(2)  # each had three ids
    assert tree.sizes == [0, 0, 0]


def test_a_share_equal_to_the_threshold_is_a_miss():
    fleet = Fleet(5)
    fleet.rows[0], fleet.rows[1] = [1, 2, 3], [1, 7, 8]
    fleet.tokens[0] = fleet.tokens[1] = 3 * ID_TOKENS
    fleet.trace.block_ids, fleet.trace.id_offsets = (
        np.array([1, 2, 3, 1, 7, 8], np.uint32),
        np.array([0, 3, 6]),
    )
    for machine in fleet.machines:
        machine.requests = 5
    fleet.machines[-1].requests = 0
    for threshold in (1 / 3, 0.33):
        made = fleet.router("cache-aware", index_kind="gateway-tree", cache_threshold=threshold)
        first = made.choose(fleet.request(0))
        assert first == fleet.count - 1
        fleet.machines[first].requests = 9
        second = made.choose(fleet.request(1))
        assert (second == first) == (threshold == 0.33 or fleet.count == 1)
        fleet.machines[first].requests = 0


@pytest.mark.parametrize("machines", [1, 4])
def test_an_empty_tree_matches_no_particular_machine(machines):
    assert GatewayTree(machines).match([1, 2]) == (0, 0)
