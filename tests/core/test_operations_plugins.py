"""Manual cache operations under plug-ins for writes and channels: equal to the built-in policies."""

import pytest
from kvcache_sim.cache.operations import MachineTiers, open_machines
from kvcache_sim.cache.settings import CacheSettings, MovementSettings, TierSettings
from kvcache_sim.channels.settings import ChannelSettings, ClusterChannels
from kvcache_sim.policies.plugins.contract import PolicyViolation
from support.small_traces import trace_of

OWN = """
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
ROWS = [["a0", "a1"], ["b0", "b1"], ["c0", "c1"]]
RATES = {"gpu->cpu": 2, "cpu->gpu": 4, "cpu->disk": 1, "disk->cpu": 1}


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def worked(write, choice):
    """Compute three requests one after another and return the transfers and the copies at each moment."""
    channels = {edge: ChannelSettings(edge, rate * 10**9, 100) for edge, rate in RATES.items()}
    channels["beside"] = ChannelSettings("beside", 10**9, 100)
    tiers = tuple(TierSettings(name, blocks) for name, blocks in (("gpu", 4), ("cpu", 4), ("disk", 8)))
    rails = {"gpu->cpu": ("gpu->cpu", "beside")}
    machine = MachineTiers(tiers, {edge: edge for edge in RATES}, rails)
    cache = CacheSettings(block_size_tokens=4, kv_bytes_per_token=1_000, num_layers=4)
    movement = MovementSettings(write={"gpu": write, "cpu": write}, channel_choice=choice)
    [one] = open_machines(trace_of(ROWS), [machine], ClusterChannels(channels), cache, movement)
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


def test_a_write_policy_of_ones_own_sends_what_the_built_in_one_sends(own):
    expected = worked("through", "assigned")
    assert worked(f"{own}:Through", "assigned") == expected
    assert expected[1] == {"gpu->cpu": 24_000, "cpu->disk": 24_000}


def test_a_channel_choice_of_ones_own_takes_the_channels_of_the_built_in_one(own):
    expected = worked("through", "emptiest")
    assert worked("through", f"{own}:Emptiest") == expected
    assert expected != worked("through", "assigned"), "the second channel carries some"


def test_an_answer_that_is_no_channel_is_one_line(own):
    with pytest.raises(PolicyViolation, match="expected the name of one of the channels"):
        worked("through", f"{own}:Nowhere")
