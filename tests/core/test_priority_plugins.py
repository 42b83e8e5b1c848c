"""Priority functions on tiers of timed runs: the core's index of blocks that may go decides as a plain heap."""

import heapq
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.policies.plugins.contract import PolicyViolation
from kvcache_sim.policies.plugins.priority import PriorityPolicy
from kvcache_sim.simulation import simulate
from support.agreement import assert_same
from support.clusters import cluster, under
from support.examples import examples
from support.traces import random_trace

FUNCTIONS = {
    "use": "b.last_use",
    "tuple": "(b.hits, -b.depth, b.last_use)",
    "fractions": "b.hits / 3 if b.id % 2 else b.hits // 3",
    "truth": "(b.hits > 1, b.last_use_ns)",
    "texts": "'%05d' % (b.last_use % 7)",
    "pairs": "(str(b.hits), b.created)",
    "huge": "b.hits * 10**30 + b.last_use if b.id % 3 else b.hits",
    "wide": "2**53 + b.hits if b.id % 2 else 2.0**53 + b.last_use",
    "deep": "((b.hits, b.depth), b.parent)",
    "lengths": "(b.hits,) * (1 + b.id % 2)",
    "lists": "[b.hits, -b.last_use]",
    "now": "(now - b.last_use) % 5",
    "infinite": "float('inf') if b.hits > 1 else -b.last_use",
    "equal": "0",
}


#: The same as a class, which Python sorts at each eviction.
SORTED = """
class Sorted:
    mode = "leaves"
    def __init__(self, tier, *, of):
        self.of, self.known = globals()[of], {}
    def on_insert(self, b, now):
        self.known[b.id] = b
    def on_hit(self, b, now):
        pass
    def victims(self, n, now, pinned):
        free = [b for b in self.known.values() if b.id not in pinned]
        return [min(free, key=lambda b: (self.of(b, now), -b.depth, b.id)).id]
    def on_remove(self, b, now):
        del self.known[b.id]
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    functions = (f"def {name}(b, now):\n    return {body}\n" for name, body in FUNCTIONS.items())
    path.write_text("".join(functions) + SORTED)
    return path


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("tiers", [(160,), (90, 60, 400)])
def test_values_of_every_kind_are_ordered_as_python_orders_them(mine, name, tiers):
    run, in_python = (
        simulate(under(cluster(tiers), f"{mine}:{own}"), random_trace(3, requests=60))
        for own in (name, f"Sorted(of={name!r})")
    )
    assert_same(run, in_python)
    assert run.counters["evictions.gpu"] > 0


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("'x' if b.last_use > 205 and b.id % 2 else b.hits", "not supported"),
        ("1 / 0 if now > 200 else b.hits", "ZeroDivisionError"),
        ("setattr(b, 'hits', 1) if b.last_use > 200 else b.hits", "read-only"),
        ("b.size if b.last_use > 200 else b.hits", "size"),
    ],
)
def test_what_a_function_raises_names_it(tmp_path, body, said):
    (tmp_path / "bad.py").write_text(f"def bad(b, now):\n    return {body}\n")
    settings = under(cluster((160,)), f"{tmp_path / 'bad.py'}:bad")
    with pytest.raises(PolicyViolation, match=said) as broken:
        simulate(settings, random_trace(2, requests=300))
    assert broken.value.where == "policy bad"


class Free:
    """A tier's report: the pinned blocks, and with ``freed`` the blocks that have become free."""

    def __init__(self):
        self.pinned, self.new = set(), []

    def __contains__(self, block):
        return block in self.pinned

    def freed(self):
        new, self.new = self.new, []
        return new


class Block:
    """A block whose value is drawn."""

    def __init__(self, id, depth, parent, value):
        self.id, self.depth, self.parent, self.value = id, depth, parent, value


@examples(60)
@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_the_first_free_leaf_is_found_whatever_is_pinned_and_freed(seed, reports, uses_now):
    draw = random.Random(seed)
    policy = PriorityPolicy((lambda b, now: b.value + 0 * now) if uses_now else (lambda b, now: b.value))
    assert policy.uses_now == uses_now
    tier, blocks, held = Free(), {}, set()
    for step in range(200):
        leaves = {id for id in blocks if all(b.parent != id for b in blocks.values())}
        before = {id for id in blocks if id in tier.pinned}
        match draw.choice(["insert", "insert", "hit", "hold", "release", "evict"]):
            case "insert":
                parent = draw.choice([-1, *blocks])
                depth = blocks[parent].depth + 1 if parent >= 0 else 0
                blocks[step] = Block(step, depth, parent, draw.randint(0, 5))
                before.add(step)
                policy.on_insert(blocks[step], step)
            case "hit" if blocks:
                block = blocks[draw.choice(list(blocks))]
                block.value = draw.randint(0, 5)
                policy.on_hit(block, step)
            case "hold" if blocks:
                held.add(draw.choice(list(blocks)))
            case "release" if held:
                held.discard(draw.choice(sorted(held)))
            case "evict":
                free = leaves - held
                tier.pinned = set(blocks) - free
                expected = min(free, key=lambda id: (blocks[id].value, -blocks[id].depth, id), default=None)
                found = policy.victims(1, step, tier if reports else tier.pinned)
                assert found == (None if expected is None else [expected])
                if found:
                    gone = blocks.pop(found[0])
                    policy.on_remove(gone, step)
                    before.discard(gone.id)
                    if gone.parent in blocks and all(b.parent != gone.parent for b in blocks.values()):
                        policy.on_leaf(blocks[gone.parent], step)
        leaves = {id for id in blocks if all(b.parent != id for b in blocks.values())}
        tier.pinned = set(blocks) - (leaves - held)
        tier.new += sorted(before - tier.pinned)
    assert len(policy.heap) <= 400
    assert policy.heap == sorted(policy.heap) or heapq.nsmallest(1, policy.heap) == policy.heap[:1]
