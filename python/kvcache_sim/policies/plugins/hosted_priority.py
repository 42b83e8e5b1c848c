"""A priority function of a block alone as the order of a tier of a timed run: the core keeps the index."""

from __future__ import annotations

from typing import Any

from kvcache_sim.errors import KvsimError
from kvcache_sim.policies.plugins.contract import violation
from kvcache_sim.policies.plugins.priority import PriorityFunction, PriorityPolicy
from kvcache_sim.policies.plugins.uses import WatchedCalls
from kvcache_sim.policies.plugins.watchdog import Watchdog


class HostedPriority:
    """Calls a priority function for the core, which keeps the blocks and takes the smallest value first."""

    #: A block that may go is followed by none.
    redirects = 0

    def __init__(self, function: PriorityFunction, name: str, dog: Watchdog) -> None:
        self._function = function
        self.name = name
        self._calls = WatchedCalls("eviction policy", name, dog)

    def rank(self, b: Any, now: int, now_ns: int) -> Any:
        """Return the value of a block.

        Args:
            b: The block, with the attributes of ``BlockView``.
            now: The number of the latest release.
            now_ns: Its time.

        Raises:
            PolicyViolation: The function raised, or did not return in time.
        """
        return self._calls(self._function, now_ns, b, now)

    def worded(self, error: BaseException, now_ns: int) -> BaseException:
        """Return the error of values that cannot be compared."""
        if isinstance(error, KvsimError):
            return error
        return violation(self.name, f"raised {type(error).__name__}: {error}", now_ns)


def function_alone(policy: Any) -> PriorityFunction | None:
    """Return the function of a policy that ranks blocks by nothing else, None of any other policy."""
    is_plain = type(policy) is PriorityPolicy and not policy.uses_now
    return policy.function if is_plain else None
