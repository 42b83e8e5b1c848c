"""Loads a plug-in, adapts it, and runs it on a small trace before it is used."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng import stream
from kvcache_sim.base.tiers import COMPUTE, TIERS
from kvcache_sim.policies.plugins.adapters import LibCacheSimHooks, VllmPolicy, hooks_of, priority_of
from kvcache_sim.policies.plugins.contract import HOOKS, MODES, PolicyViolation
from kvcache_sim.policies.plugins.host import PolicyTier
from kvcache_sim.policies.plugins.load import Plugin, load_plugin
from kvcache_sim.policies.plugins.priority import PriorityPolicy
from kvcache_sim.policies.plugins.views import TierView
from kvcache_sim.policies.plugins.watchdog import watched

#: Requests and capacity of the self-test: small enough that nearly every request evicts.
SELF_TEST_REQUESTS = 200
SELF_TEST_BLOCKS = 24

#: Creates a new policy for a tier.
PolicyMaker = Callable[[TierView], Any]


def open_policy(text: str) -> tuple[Plugin, PolicyMaker]:
    """Return a plug-in and the constructor of its policies; raises ``UsageError`` if its self-test fails.

    The self-test runs 200 requests twice: answers must be resident, not held, and equal in both runs, and a
    call of ``victims`` must not change the policy. Orphaned children are checked on the tier itself.
    """
    plugin = load_plugin(text)
    maker = _maker(plugin)
    try:
        first = _self_test(plugin, maker, asks=1)
        if first != _self_test(plugin, maker, asks=1):
            raise UsageError(
                "not deterministic: two runs of the self-test differ",
                where=f"policy {plugin.name}",
                hint="no wall clock, no random numbers without a fixed seed, no iteration over a set",
            )
        if not _takes_victims(plugin) and first != _self_test(plugin, maker, asks=2):
            raise UsageError(
                "victims changes the policy: asking twice gives another answer",
                where=f"policy {plugin.name}",
                hint="forget a block in on_remove",
            )
    except PolicyViolation as error:
        raise UsageError(
            f"self-test: {error.what}", error.where, error.got, error.expected, error.hint
        ) from None
    return plugin, maker


def self_test_paths() -> list[list[int]]:
    """Return the requests of the self-test: branches of a small tree, some repeated, some new."""
    draw = stream(7, "policy.self-test")
    paths: list[list[int]] = []
    fresh = 0
    for _ in range(SELF_TEST_REQUESTS):
        base = paths[int(draw.integers(max(0, len(paths) - 30), len(paths)))] if paths else []
        keep = int(draw.integers(0, len(base) + 1))
        new = int(draw.integers(1, 6))
        paths.append(base[:keep] + list(range(fresh, fresh + new)))
        fresh += new
    return paths


def _self_test(plugin: Plugin, maker: PolicyMaker, asks: int) -> list[int]:
    with watched(plugin.name) as dog:
        policy = maker(TierView(TIERS[COMPUTE], SELF_TEST_BLOCKS, 16))
        tier = PolicyTier(policy, plugin.name, SELF_TEST_BLOCKS, dog)
        # orphaned children depend on the capacity; the real tier checks them
        tier.allow_holes = True
        if asks > 1:
            once = tier._victims
            tier._victims = lambda n, now, pinned: (once(n, now, pinned), once(n, now, pinned))[1]
        hits = [tier.request(path, 1000 * k) for k, path in enumerate(self_test_paths())]
    return hits + tier.evictions


def _takes_victims(plugin: Plugin) -> bool:
    return plugin.adapter in ("vllm", "libcachesim")


def _maker(plugin: Plugin) -> PolicyMaker:
    """Return the constructor of the plug-in's policies; raises ``UsageError`` for other objects."""
    target = plugin.target
    if plugin.adapter == "libcachesim":
        hooks = hooks_of(target, plugin.text)
        return lambda tier: LibCacheSimHooks(hooks, tier)
    if plugin.adapter == "vllm":
        _expect(plugin, ("get", "insert", "remove", "touch", "evict"), "vLLM's CachePolicy")
        return lambda tier: VllmPolicy(_made(plugin, tier.capacity_blocks))
    if plugin.adapter == "sglang":
        _expect(plugin, ("get_priority",), "SGLang's EvictionStrategy")
        return lambda tier: PriorityPolicy(priority_of(_made(plugin)))
    if inspect.isclass(target):
        _expect(plugin, HOOKS, "a policy class")
        mode = getattr(target, "mode", "closed")
        if mode not in MODES:
            raise UsageError("unknown mode", where=plugin.text, got=repr(mode), expected=" | ".join(MODES))
        return lambda tier: _made(plugin, tier)
    if callable(target):
        if plugin.arguments:
            raise UsageError("a priority function takes no arguments", where=plugin.text)
        _check_call(plugin, target, (None, 0))
        return lambda tier: PriorityPolicy(target)
    raise UsageError(
        "neither a function nor a class",
        where=plugin.text,
        got=type(target).__name__,
        hint="kvsim policies new",
    )


def _expect(plugin: Plugin, hooks: tuple[str, ...], what: str) -> None:
    absent = [hook for hook in hooks if not callable(getattr(plugin.target, hook, None))]
    if not inspect.isclass(plugin.target) or absent:
        raise UsageError(
            f"not {what}", where=plugin.text, got=f"no {', no '.join(absent)}" if absent else "not a class"
        )


def _made(plugin: Plugin, *arguments: Any) -> Any:
    _check_call(plugin, plugin.target, arguments)
    try:
        return plugin.target(*arguments, **plugin.arguments)
    except (Exception, SystemExit) as error:
        raise UsageError(f"cannot be made: {type(error).__name__}: {error}", where=plugin.text) from None


def _check_call(plugin: Plugin, target: Any, arguments: tuple[Any, ...]) -> None:
    try:
        inspect.signature(target).bind(*arguments, **plugin.arguments)
    except ValueError:
        return  # no inspectable signature
    except TypeError as error:
        raise UsageError(f"cannot be called: {error}", where=plugin.text) from None
