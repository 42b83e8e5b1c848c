"""A secondary tier below vLLM's CPU offloading, key by key: who goes for a promotion, and what a policy is told."""

from __future__ import annotations

import pytest
from kvcache_sim.reference.engines.offload_access import Access
from kvcache_sim.reference.engines.ranked_lru import RankedLru
from kvcache_sim.reference.engines.tiered_offload import TieredOffload


def tier_of(capacity: int, below: str = "", policy: str = "lru") -> TieredOffload:
    tier = TieredOffload(policy, capacity)
    tier.below.update(below)
    return tier


def there(tier: TieredOffload) -> str:
    return "".join(sorted(tier.ranked.ranks))


def test_what_a_look_up_promotes_stays_while_it_promotes_more():
    """The first request has the lowest rank: of its keys a would go for b, were it not being promoted itself."""
    tier = tier_of(2, "abc")
    assert tier.ask(0, 0, "c") == 1
    for request, key in ((1, "x"), (2, "y")):
        tier.offer(request, [0], [key])
        tier.finish(request)
    assert there(tier) == "xy"
    assert tier.ask(0, 0, "ab") == 2
    assert (there(tier), tier.promoted, tier.evicted, tier.given_up) == ("ab", 3, 3, 0)


def test_later_places_of_a_request_go_first():
    tier = tier_of(3, "abc")
    assert tier.ask(0, 0, "abc") == 3
    for request, key, left in ((1, "x", "abx"), (2, "y", "axy"), (3, "z", "xyz")):
        tier.offer(request, [0], [key])
        assert there(tier) == left


def test_a_request_keeps_its_first_rank_and_takes_none_from_a_later_one():
    tier = tier_of(3, "abx")
    tier.ask(0, 0, "a")  # rank 1
    tier.ask(1, 1, "x")  # rank 2
    tier.load(1, [0], ["a"])  # a has rank 2 as well, before x
    tier.ask(0, 1, "b")  # b has rank 1
    tier.load(0, [0], ["a"])  # and a keeps 2
    for request, key, left in ((2, "u", "aux"), (3, "v", "auv")):
        tier.offer(request, [0], [key])
        assert there(tier) == left


def test_a_store_that_is_refused_forgets_no_rank():
    policy = RankedLru(3)
    policy.store(["a", "b", "c"], set())
    for request, key in enumerate("abc"):
        policy.accessed(request, {0: (key, Access.STORED)})
    assert policy.store(["x", "y"], {"b", "c"}) is None
    assert sorted(policy.ranks) == ["a", "b", "c"]
    assert policy.store(["x"], set()) == ["a"]
    assert policy.store(["y"], {"b"}) == ["c"]


def test_keys_count_once_more_at_the_end_the_first_as_the_last():
    tier = tier_of(3, "abc")
    tier.ask(0, 0, "abc")
    tier.ask(1, 0, "a")
    tier.finish(0)  # c, b, a: each a rank of its own
    for request, key, left in ((2, "x", "abx"), (3, "y", "axy")):
        tier.offer(request, [0], [key])
        assert there(tier) == left


def test_what_a_request_promoted_it_has_stored_and_what_it_found_it_uses_again():
    tier = tier_of(9, "ab")
    tier.offer(7, [0], ["c"])
    assert tier.ask(0, 4, "ab") == 2
    assert tier.used[0] == {4: ("a", Access.STORED), 5: ("b", Access.STORED)}
    tier.load(0, [4, 5, 6], ["a", "b", "c"])
    assert tier.used[0] == {4: ("a", Access.STORED), 5: ("b", Access.STORED), 6: ("c", Access.REUSED)}


class Forgets:
    """A policy that notes what it is told and keeps nothing but ``kept``."""

    def __init__(self, kept: str = "") -> None:
        self.kept, self.offered = set(kept), list[str]()

    def __contains__(self, key: str) -> bool:
        return key in self.kept

    def offer(self, keys) -> None:
        self.offered += keys

    def store(self, new, protected) -> list[str]:
        return list(new)

    def access(self, keys) -> None: ...
    def finish(self, used) -> None: ...


def test_a_policy_hears_once_a_request_of_each_key_that_it_lacks():
    tier = tier_of(4, "ab", "arc")
    tier.policy = policy = Forgets()
    assert tier.ask(0, 0, "ab") == 0  # evicted as soon as they are promoted: asked for until it is given up
    assert (policy.offered, tier.given_up, tier.promoted, tier.evicted) == (["a", "b"], 1, 6, 6)
    tier.ask(1, 0, "a")
    assert policy.offered == ["a", "b", "a"]
    tier.finish(0)
    tier.ask(0, 0, "b")
    assert policy.offered == ["a", "b", "a", "b"]
    assert tier.given_up == 3


def test_what_was_there_when_it_was_offered_is_not_missed_yet():
    tier = tier_of(4, "a", "arc")
    tier.policy = policy = Forgets("a")
    tier.offer(0, [0], ["a"])
    policy.kept.clear()
    tier.ask(0, 0, "a")
    assert policy.offered == ["a", "a"]


@pytest.mark.parametrize(("below", "found"), [("", 0), ("a", 1), ("abd", 2), ("bc", 0)])
def test_no_more_is_asked_for_than_leads_and_fits(below, found):
    assert tier_of(2, below).ask(0, 0, "abcd") == found
