"""Manual cache operations under eviction, write and channel policies: the machine is the simulation's own."""

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cache.settings import CacheSettings, MovementSettings, TierSettings
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.policies.plugins.contract import PolicyViolation
from support.product.machines import ClusterChannels, MachineTiers, open_machines
from support.small_traces import trace_of

CACHE = CacheSettings(block_size_tokens=4, kv_bytes_per_token=1_000, num_layers=4)
OWN = """
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

class Through:
    writes_back, delays_step = True, False
    def __init__(self, upper, settings):
        self.at_commit = upper == 0
    def committed(self, store, lease, blocks, now_ns):
        return store.write_through(lease, *blocks, now_ns)
    def used(self, store, lease, now_ns):
        return None
    def arrived(self, store, move, now_ns):
        return store.write_on(move, now_ns)

class Emptiest:
    def choose(self, sending, channels):
        return min(channels, key=lambda name: channels[name].wait_ns(sending.now_ns))

class Nowhere:
    def choose(self, sending, channels):
        return "no such channel"
"""


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def machine(policy, cache=CACHE):
    """Return one machine with three blocks on its GPU, for requests a, b, c and d of a block each."""
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


def left(one):
    """Return the requests whose blocks are there."""
    return [request for request in range(4) if one.match_prefix(request, 1)]


@pytest.mark.parametrize(
    ("policy", "stay"),
    [("lru", [0, 2, 3]), ("fifo", [1, 2, 3]), ("lfu", [0, 2, 3]), ("OWN:MostRecent", [1, 2, 3])],
)
def test_who_leaves_first_is_the_policys_choice(own, policy, stay):
    """Four blocks in a capacity of three; the first was used again."""
    one = machine(policy.replace("OWN", str(own)))
    for at, request in enumerate((0, 1, 2, 0, 3)):
        one.run_until(at * 1_000)
        computed(one, request)
    one.store.check()
    assert left(one) == stay


def test_a_time_to_live_ends():
    one = machine("ttl:1s")
    computed(one, 0)
    one.run_until(999_999_999)
    assert left(one) == [0]
    computed(one, 1)
    one.run_until(1_000_000_000)
    assert left(one) == [1]
    one.run_until(10**10)
    assert one.store.occupancy(0)[:3] == (3, 0, 0)


def test_an_unknown_policy_and_a_cache_that_is_no_tree_are_refused():
    with pytest.raises(UsageError, match="nonsense"):
        machine("nonsense")
    with pytest.raises(UsageError, match="tree"):
        machine("lru", CacheSettings(block_size_tokens=4, semantics="vllm"))


def worked(write, choice):
    """Compute three requests one after another and return the transfers and the copies at each moment."""
    rates = {"gpu->cpu": 2, "cpu->gpu": 4, "cpu->disk": 1, "disk->cpu": 1}
    channels = {edge: ChannelSettings(edge, rate * 10**9, 100) for edge, rate in rates.items()}
    channels["beside"] = ChannelSettings("beside", 10**9, 100)
    tiers = tuple(TierSettings(name, blocks) for name, blocks in (("gpu", 4), ("cpu", 4), ("disk", 8)))
    machines = [MachineTiers(tiers, {edge: edge for edge in rates}, {"gpu->cpu": ("gpu->cpu", "beside")})]
    movement = MovementSettings(write={"gpu": write, "cpu": write}, channel_choice=choice)
    rows = [["a0", "a1"], ["b0", "b1"], ["c0", "c1"]]
    [one] = open_machines(trace_of(rows), machines, ClusterChannels(channels), CACHE, movement)
    seen = []
    for request, at_ns in ((0, 0), (1, 200), (2, 90_000)):
        one.run_until(at_ns)
        active = one.allocate_active(request, 0, 2)
        switched = one.switch_active_into_cache(active, 2, one.now_ns)
        seen.append((switched.cached_blocks, switched.written.edge, switched.written.ready_at_ns))
        one.release(active)
    for at_ns in (91_000, 200_000):
        one.run_until(at_ns)
        one.store.check()
        seen.append([one.match_prefix(request, 2) for request in range(3)])
    return seen, one.mover.edge_bytes, {name: link.sent_bytes for name, link in one.mover.channels.items()}


def test_write_and_channel_policies_of_ones_own_send_what_the_built_in_ones_send(own):
    assigned, emptiest = (worked("through", choice) for choice in ("assigned", "emptiest"))
    assert worked(f"{own}:Through", "assigned") == assigned
    assert worked("through", f"{own}:Emptiest") == emptiest
    assert assigned != emptiest, "the second channel carries some"
    assert assigned[1] == {"gpu->cpu": 24_000, "cpu->disk": 24_000}
    with pytest.raises(PolicyViolation, match="channels"):
        worked("through", f"{own}:Nowhere")
