"""``kvsim policies new``: a starting point for a policy, and its test."""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import Template

from kvcache_sim.base.errors import UsageError

_POLICY = Template('''"""$title: $class_name for kvsim.

    kvsim cachesim trace.jsonl --policy $module.py:$class_name --capacity 10000
    kvsim policies check $module.py:$class_name
"""

from collections import OrderedDict


class $class_name:
    """Least recently used: a starting point.

    Hooks of a request are called deepest block first: new blocks, then the blocks found.
    ``b`` is read-only: b.id, b.depth, b.hits, b.last_use, b.created (releases, like now), b.last_use_ns.
    """

    name = "$name"

    # Called once. The tier has name, capacity_blocks and block_size_tokens.
    def __init__(self, tier):
        self.capacity = tier.capacity_blocks
        self.order = OrderedDict()

    # Called after block b was inserted.
    def on_insert(self, b, now):
        self.order[b.id] = None

    # Called for each use of a resident block b.
    def on_hit(self, b, now):
        self.order.move_to_end(b.id)

    def victims(self, n, now, pinned):
        """Return exactly n ids, none in pinned, or None; must not change the policy.

        Least recently used blocks first.
        """
        found = []
        for block in self.order:
            if len(found) == n:
                break
            # A pinned block cannot be evicted.
            if block not in pinned:
                found.append(block)
        return found if len(found) == n else None

    # Called after block b was evicted.
    def on_remove(self, b, now):
        del self.order[b.id]
''')

_TEST = Template('''"""Tests of $class_name: the contract on random traces, and the upper bound."""

from pathlib import Path

from kvcache_sim.replay.policy_check import check_policy

POLICY = f"{Path(__file__).with_name('$module.py')}:$class_name"


def test_the_contract_holds():
    report = check_policy(POLICY, seed=0)
    assert report.requests > 0


def test_no_better_than_the_upper_bound():
    for row in check_policy(POLICY, seed=1, rounds=1).comparisons:
        assert row.policy <= row.belady
''')


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A class name and two files: name and text of the policy and of its test."""

    class_name: str
    policy_file: str
    policy: str
    test_file: str
    test: str


def skeleton(name: str) -> Skeleton:
    """Return the files of a new policy; raises ``UsageError`` for an invalid name."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,39}", name):
        raise UsageError(
            "not a name for a policy", where="NAME", got=repr(name), expected="such as two-queue"
        )
    module = "_".join(words)
    values = {
        "name": "-".join(words),
        "module": module,
        "class_name": "".join(word.capitalize() for word in words),
        "title": " ".join(words),
    }
    return Skeleton(
        values["class_name"],
        f"{module}.py",
        _POLICY.substitute(values),
        f"test_{module}.py",
        _TEST.substitute(values),
    )
