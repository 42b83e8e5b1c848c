"""Eviction policies from files: they decide as the built-in policy of the same rule, whatever project wrote them."""

from __future__ import annotations

import json
import subprocess
import sys
from hashlib import sha256

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.policies.definition import definition_of, policy_rules
from kvcache_sim.policies.plugins.host import PolicyTier
from kvcache_sim.policies.plugins.load import load_plugin
from kvcache_sim.policies.plugins.open import open_policy
from kvcache_sim.policies.plugins.views import TierView
from kvcache_sim.policies.plugins.watchdog import Watchdog
from kvcache_sim.policies.resolve import resolve_policy
from kvcache_sim.policies.table import EVICTION_POLICIES
from kvcache_sim.replay.policy_check import check_policy
from kvcache_sim.replay.prompt_blocks import blocks_of_prompts
from kvcache_sim.replay.request import REPLAYERS, ReplayRequest
from support.examples import examples
from support.small_traces import trace_of, tree_traces

GOOD = """
from collections import OrderedDict


def lru(b, now):
    return b.last_use


def lfu(b, now):
    return (b.hits, b.last_use)


def fifo(b, now):
    return b.created


def oldest_by_age(b, now):
    return b.last_use - now


class Lru:
    def __init__(self, tier):
        self.order = OrderedDict()

    def on_insert(self, b, now):
        self.order[b.id] = None

    def on_hit(self, b, now):
        self.order.move_to_end(b.id)

    def victims(self, n, now, pinned):
        found = [k for k in self.order if k not in pinned][:n]
        return found if len(found) == n else None

    def on_remove(self, b, now):
        del self.order[b.id]


class Fifo(Lru):
    mode = "leaves"

    def on_hit(self, b, now):
        pass


class Named(Lru):
    name = "by-hand"

    def __init__(self, tier, *, share: float = 0.25):
        super().__init__(tier)
        self.kept_blocks = share * tier.capacity_blocks
"""

VLLM = """
from collections import OrderedDict
from collections.abc import Iterable

from vllm.v1.core.kv_cache_utils import BlockHash
from vllm.v1.kv_offload.cpu.policies.abstract import BlockStatus, CachePolicy


class Recency(CachePolicy):
    def __init__(self, cache_capacity: int):
        self.blocks: OrderedDict[BlockHash, BlockStatus] = OrderedDict()

    def get(self, key):
        return self.blocks.get(key)

    def insert(self, key, block):
        self.blocks[key] = block

    def remove(self, key):
        del self.blocks[key]

    def touch(self, keys: Iterable):
        for key in reversed(list(keys)):
            if key in self.blocks:
                self.blocks.move_to_end(key)

    def evict(self, n, protected):
        found = [(k, b) for k, b in self.blocks.items() if b.ref_cnt == 0 and k not in protected][:n]
        if len(found) < n:
            return None
        for key, _ in found:
            del self.blocks[key]
        return found
"""

SGLANG = """
from __future__ import annotations
from typing import TYPE_CHECKING
from sglang.srt.mem_cache.evict_policy import EvictionStrategy
if TYPE_CHECKING:
    from sglang.srt.mem_cache.radix_cache import TreeNode


class Frequency(EvictionStrategy):
    def get_priority(self, node: TreeNode):
        return (node.hit_count, node.last_access_time)


class Age(EvictionStrategy):
    def get_priority(self, node: TreeNode):
        return node.creation_time
"""

LIBCACHESIM = """
from collections import OrderedDict
from libcachesim import CommonCacheParams, PluginCache, Request


def init_hook(params: CommonCacheParams):
    return OrderedDict()


def hit_hook(data, req: Request):
    data.move_to_end(req.obj_id, last=True)


def miss_hook(data, req: Request):
    data[req.obj_id] = req.obj_size


def eviction_hook(data, req: Request):
    return data.popitem(last=False)[0]


def remove_hook(data, obj_id):
    data.pop(obj_id, None)
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("policies")
    for name, text in (("good", GOOD), ("of_vllm", VLLM), ("of_sglang", SGLANG), ("of_lcs", LIBCACHESIM)):
        (folder / f"{name}.py").write_text(text)
    return folder


def replay(request, policy):
    family, variant = resolve_policy(policy)
    return REPLAYERS[family](request, variant)


requests = st.builds(
    ReplayRequest,
    trace=tree_traces(),
    block_size_tokens=st.sampled_from([2, 4]),
    capacity_blocks=st.integers(1, 40),
    last_partial=st.sampled_from(["drop", "keep"]),
    window=st.sampled_from([0, 0, 1, 2, 5]),
    explain=st.booleans(),
)

#: A plug-in and the native policy that must decide the same.
PAIRS = [
    ("good.py:lru", "lru"),
    ("good.py:oldest_by_age", "lru"),
    ("good.py:Lru", "lru"),
    ("good.py:lfu", "lfu"),
    ("good.py:fifo", "fifo"),
    ("good.py:Fifo", "fifo"),
    ("vllm:of_vllm.py:Recency", "lru"),
    ("sglang:of_sglang.py:Frequency", "lfu"),
    ("sglang:of_sglang.py:Age", "fifo"),
    ("libcachesim:of_lcs.py", "lru"),
]


def at(files, policy):
    """Put the folder before the file's name."""
    adapter, colon, rest = policy.partition(":")
    return f"{adapter}:{files}/{rest}" if colon and not adapter.endswith(".py") else f"{files}/{policy}"


@pytest.mark.parametrize(("plugin", "native"), PAIRS)
@examples(15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(request=requests)
def test_a_plugin_decides_as_the_native_policy(files, plugin, native, request):
    found, expected = replay(request, at(files, plugin)), replay(request, native)
    assert found["per_request_hit_tokens_sha256"] == expected["per_request_hit_tokens_sha256"]
    assert found["evictions"] == expected["evictions"]
    assert found.get("not_admitted_blocks") == expected.get("not_admitted_blocks")
    assert found["upper_bounds"] == expected["upper_bounds"]
    if request.explain:
        assert found["requests"] == expected["requests"]
        assert found["misses"] | {"evicted_by": ""} == expected["misses"] | {"evicted_by": ""}
    assert found["holes"] == 0


def test_arguments_stand_behind_the_name(files):
    plugin, maker = open_policy(f"{files}/good.py:Named(share=0.5)")
    assert plugin.name == "by-hand"
    assert maker(TierView("gpu", 8, 16)).kept_blocks == 4


def test_a_module_and_an_entry_point(files, monkeypatch):
    monkeypatch.syspath_prepend(str(files))
    (files / "made_pkg").mkdir()
    (files / "made_pkg" / "__init__.py").write_text("")
    (files / "made_pkg" / "mod.py").write_text(GOOD)
    (files / "made-1.dist-info").mkdir()
    (files / "made-1.dist-info" / "METADATA").write_text("Name: made\nVersion: 1\n")
    (files / "made-1.dist-info" / "entry_points.txt").write_text(
        "[kvsim.eviction]\nmine = made_pkg.mod:lfu\n"
    )
    request = ReplayRequest(trace_of([["a"], ["a"]]), 4, 3, last_partial="keep")
    for name in ("made_pkg.mod:Lru", "made_pkg.mod:Lru()", "good:Lru", "mine"):
        assert replay(request, name)["hit_blocks"] == 1
    for name in (f"{files}/good.py:Lru", "good:Lru"):
        plugin = load_plugin(name)
        assert plugin.source == str(files / "good.py")
        assert plugin.source_sha256 == sha256(GOOD.encode()).hexdigest()
    plugin = load_plugin("itertools:count")  # built in: no file
    assert (plugin.source, plugin.source_sha256) == ("", "")


class NamesAny:
    """Names blocks in a drawn order, and notes which should leave instead, by scanning all paths."""

    mode = "redirect"

    def __init__(self, draw):
        self.draw, self.there, self.parent = draw, set(), {}
        self.leave, self.redirects = [], 0

    def on_insert(self, b, now):
        self.there.add(b.id)
        self.parent[b.id] = b.parent

    def on_hit(self, b, now):
        pass

    def on_remove(self, b, now):
        self.there.remove(b.id)

    def path(self, block):
        """Return the blocks from the root to a block."""
        return (*self.path(self.parent[block]), block) if block >= 0 else ()

    def victims(self, n, now, pinned):
        """Name n blocks of which none would take a held one along."""
        named, gone = [], []
        for victim in self.draw.sample(sorted(self.there), len(self.there)):
            at = next((b for b in reversed(self.path(victim)) if b not in gone), victim)
            if len(named) < n and victim not in pinned and at not in pinned:
                below = [self.path(b) for b in self.there if b not in gone and at in self.path(b)]
                gone.append(min(below, key=lambda one: (-len(one), one))[-1])
                named.append(victim)
        if len(named) < n:
            return None
        self.leave += sorted(gone, key=lambda b: (-len(self.path(b)), b))
        self.redirects += sum(a != b for a, b in zip(gone, named, strict=True))
        return named


@examples(80)
@given(tree_traces(), st.integers(1, 20), st.randoms(use_true_random=False))
def test_a_victim_with_children_is_replaced_by_its_deepest_descendant(trace, capacity, draw):
    """Of equally deep ones the path of the smallest blocks; a block that was taken counts as gone."""
    policy = NamesAny(draw)
    tier = PolicyTier(policy, "mine", capacity, Watchdog(watches=False))
    for path in blocks_of_prompts(ReplayRequest(trace, 4, 1)).numbered_paths():
        tier.request(path, 0)
    assert (tier.evictions, tier.redirects) == (policy.leave, policy.redirects)


@pytest.mark.parametrize("name", ["sieve", "ttl:30s", "vllm", "good.py:lru"])
def test_list_and_show(files, capsys, name, monkeypatch):
    monkeypatch.chdir(files)
    assert kvsim(["policies", "list", "--json"]) == 0
    listed = {row["name"] for row in json.loads(capsys.readouterr().out)["policies"]}
    assert listed >= {row.name for row in EVICTION_POLICIES}
    assert kvsim(["policies", "show", name]) == 0
    assert name.partition(":")[0] in capsys.readouterr().out


def test_every_eviction_policy_has_a_rule_that_is_shown():
    assert {row.name for row in EVICTION_POLICIES} == policy_rules().keys()
    for row in EVICTION_POLICIES:
        shown = " ".join(definition_of(row.example).split())
        assert shown.count(policy_rules()[row.name][:60]) == 1


def test_a_new_policy_passes_its_own_test_and_check(tmp_path):
    new = ["policies", "new", "My_own-2", "-o", str(tmp_path)]
    assert [kvsim(new), kvsim(new)] == [0, 6]
    assert kvsim(["policies", "check", f"{tmp_path}/my_own_2.py:MyOwn2", "--rounds", "5"]) == 0
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_own_2.py"]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0


@pytest.mark.parametrize("name", ["../x", "", "9lives", "a b", "-a", "_a", "a.b", "x" * 41])
def test_a_name_that_names_no_policy_is_refused(tmp_path, name):
    assert kvsim(["policies", "new", f"--output={tmp_path}", "--", name]) == 2
    assert list(tmp_path.iterdir()) == []


def test_check_compares_with_lru_and_belady(files):
    report = check_policy(f"{files}/good.py:Lru", seed=3, rounds=3)
    for row in report.comparisons:
        assert row.policy == row.lru <= row.belady
