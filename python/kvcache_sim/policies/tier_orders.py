"""The eviction orders of a machine's tiers from the names of policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.policies.resolve import parse_variant, resolve_policy, row_of

if TYPE_CHECKING:
    from kvcache_sim import _core
    from kvcache_sim.policies.plugins.hosted import HostedOrder, HostedPriority
    from kvcache_sim.policies.plugins.load import Plugin
    from kvcache_sim.policies.plugins.open import PolicyMaker
    from kvcache_sim.policies.plugins.watchdog import Watchdog
    from kvcache_sim.policies.settings import Variant

    #: An order as the native store takes it: a policy of the core (name, settings, blocks), a priority
    #: function, a class, or recency.
    NativeOrder = (
        tuple[str, _core.ReplayPolicySettings, int] | tuple[str, HostedPriority] | HostedOrder | None
    )

_MOST_BLOCKS = 1 << 40


class OrderedTier(Protocol):
    """Input of an eviction order: a tier's name, capacity in blocks (None: unbounded) and policy name."""

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def capacity_blocks(self) -> int | None: ...  # noqa: D102

    @property
    def policy(self) -> str: ...  # noqa: D102


class EvictionChoice(Value):
    """A parsed policy name: a policy of the table with its setting, or a plug-in."""

    variant: Variant | None
    plugin: tuple[Plugin, PolicyMaker] | None = None


def choose_eviction(text: str, block_size_tokens: int) -> EvictionChoice | None:
    """Parse the policy of a tier of a timed run; None is ``lru``, which stores implement themselves.

    Raises UsageError for an unknown name, an upper bound, an engine's own manager, and a plug-in that fails
    its self-test or needs whole requests.
    """
    if text == "lru":
        return None
    try:
        return _choice(text, block_size_tokens)
    except UsageError as error:
        error.where = error.where.removeprefix("--policy")  # the caller has the location of the name
        raise


def _choice(text: str, block_size_tokens: int) -> EvictionChoice:
    family, variant = resolve_policy(text)
    if family == "plugin":
        return EvictionChoice(None, _opened(text, variant))
    row = row_of(text)
    if not row.evicts:
        why = "an upper bound needs the future" if row.is_upper_bound else "set cache.semantics instead"
        if family == "hosted":
            why = "a provider's machines are not known; kvsim cachesim replays its cache"
        raise UsageError("no eviction policy of a tier", got=repr(text), hint=why)
    return EvictionChoice(parse_variant(variant, block_size_tokens))


def _opened(text: str, variant: str) -> tuple[Plugin, PolicyMaker]:
    from kvcache_sim.policies.plugins.open import open_policy

    plugin, maker = open_policy(variant)
    if plugin.adapter in ("vllm", "libcachesim") or getattr(plugin.target, "allow_holes", False):
        raise UsageError(
            "leaves holes in prefixes, which a tier of a timed run cannot have",
            got=repr(text),
            hint="kvsim cachesim runs it",
        )
    return plugin, maker


class Orders:
    """The eviction orders of one store; each call creates new ones. Plug-ins are watched by ``dog``."""

    def __init__(self, block_size_tokens: int, dog: Watchdog) -> None:
        self._block = block_size_tokens
        self._dog = dog
        self._chosen: dict[str, EvictionChoice | None] = {}
        self._hosts: list[tuple[str, HostedOrder | HostedPriority]] = []

    def _choice(self, text: str) -> EvictionChoice | None:
        if text not in self._chosen:
            self._chosen[text] = choose_eviction(text, self._block)
        return self._chosen[text]

    def remarks(self) -> list[str]:
        """Return notes on the plug-ins after a run, one per line."""
        redirected = [(host.name, tier, host.redirects) for tier, host in self._hosts if host.redirects]
        return [
            f"policy {name} on the {tier} tier: {redirects:,} victims had a resident successor; the deepest "
            "successor was evicted instead"
            for name, tier, redirects in redirected
        ]

    def native(self, tiers: Sequence[OrderedTier]) -> list[NativeOrder]:
        """Return the orders in the core's form, by tier."""
        orders: list[NativeOrder] = []
        for level, tier in enumerate(tiers):
            choice = self._choice(tier.policy)
            if choice is None:
                orders.append(None)
            elif choice.variant is not None:
                orders.append((choice.variant.name, choice.variant.native, _blocks(tier)))
            else:
                orders.append(self._plugin(choice, tiers, level))
        return orders

    def _plugin(self, choice: EvictionChoice, tiers: Sequence[OrderedTier], level: int) -> NativeOrder:
        """Return a plug-in in the core's form; the core keeps the index for a function of the block alone."""
        from kvcache_sim.policies.plugins.hosted import HostedPriority, function_alone

        plugin, policy = self._made(choice, tiers[level])
        function = function_alone(policy)
        if function is None:
            return self._hosted(plugin, policy, tiers, level)
        order = HostedPriority(function, plugin.name, self._dog)
        self._hosts.append((tiers[level].name, order))
        return "priority", order

    def _made(self, choice: EvictionChoice, tier: OrderedTier) -> tuple[Plugin, Any]:
        from kvcache_sim.policies.plugins.views import TierView

        assert choice.plugin is not None
        plugin, maker = choice.plugin
        self._dog.start()
        return plugin, maker(TierView(tier.name, _blocks(tier), self._block))

    def _hosted(self, plugin: Plugin, policy: Any, tiers: Sequence[OrderedTier], level: int) -> HostedOrder:
        from kvcache_sim.policies.plugins.hosted import HostedOrder

        tier = tiers[level]
        # a last copy may be pinned by a faster tier: then not all blocks below a victim are evictable
        one_by_one = 0 < level == len(tiers) - 1
        order = HostedOrder(policy, plugin.name, _blocks(tier), self._dog, one_by_one)
        self._hosts.append((tier.name, order))
        return order


def _blocks(tier: OrderedTier) -> int:
    return _MOST_BLOCKS if tier.capacity_blocks is None else tier.capacity_blocks
