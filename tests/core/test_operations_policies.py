"""Manual cache operations use a tier's named eviction policy: the machine is the simulation's own."""

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cache.operations import MachineTiers, open_machines
from kvcache_sim.cache.settings import CacheSettings, MovementSettings, TierSettings
from kvcache_sim.channels.settings import ClusterChannels
from support.small_traces import trace_of

A, B, C, D = range(4)
CACHE = CacheSettings(block_size_tokens=4, kv_bytes_per_token=1_000, num_layers=4)

MOST_RECENT = """
class MostRecent:
    def __init__(self, tier):
        self.order = {}
    def on_insert(self, b, now):
        self.order[b.id] = None
    def on_hit(self, b, now):
        del self.order[b.id]
        self.order[b.id] = None
    def victims(self, n, now, pinned):
        free = [k for k in reversed(self.order) if k not in pinned]
        return free[:n] if len(free) >= n else None
    def on_remove(self, b, now):
        del self.order[b.id]
"""


def machine(policy, cache=CACHE):
    """Return one machine with three blocks on its GPU."""
    tiers = MachineTiers((TierSettings("gpu", 3, policy),))
    rows = [["a"], ["b"], ["c"], ["d"]]
    [one] = open_machines(trace_of(rows), [tiers], ClusterChannels({}), cache, MovementSettings())
    return one


def computed(one, request):
    """Put a request's only block on the GPU, or use it once more where it is there."""
    reuse = len(one.match_prefix(request, 1))
    active = one.allocate_active(request, reuse, 1 - reuse)
    one.switch_active_into_cache(active, 1 - reuse, one.now_ns)
    one.release(active)


def left(policy):
    """Return the blocks left of four in a capacity of three; the first block was used again."""
    one = machine(policy)
    for at, request in enumerate((A, B, C, A, D)):
        one.run_until(at * 1_000)
        computed(one, request)
    one.store.check()
    return [request for request in range(4) if one.match_prefix(request, 1)]


def test_an_unknown_policy_is_refused_in_one_line():
    with pytest.raises(UsageError) as refused:
        machine("nonsense")
    assert "\n" not in str(refused.value)
    assert "nonsense" in str(refused.value)


@pytest.mark.parametrize(("policy", "stay"), [("lru", [A, C, D]), ("fifo", [B, C, D]), ("lfu", [A, C, D])])
def test_who_leaves_first_is_the_policys_choice(policy, stay):
    assert left(policy) == stay


def test_a_plug_in_chooses(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MOST_RECENT)
    assert left(f"{path}:MostRecent") == [B, C, D]


def test_a_time_to_live_ends():
    one = machine("ttl:1s")
    computed(one, A)
    one.run_until(999_999_999)
    assert len(one.match_prefix(A, 1)) == 1
    computed(one, B)
    one.run_until(1_000_000_000)
    assert one.match_prefix(A, 1) == ()
    assert len(one.match_prefix(B, 1)) == 1
    one.run_until(10**10)
    assert one.store.occupancy(0)[:3] == (3, 0, 0)


def test_a_cache_that_is_no_tree_is_refused():
    with pytest.raises(UsageError, match="only blocks of the tree"):
        machine("lru", CacheSettings(block_size_tokens=4, semantics="vllm"))
