"""A gateway's queue: each tenant's requests in order, let in by class, weighted share and tokens a second.

Who is let in next is the tenant of the smallest class, of these the one that was given the fewest tokens by
its weight: the virtual token counter of Sheng et al., "Fairness in Serving Large Language Models" (OSDI
2024), algorithm 2, with both kinds of token weighing 1 and counted when a request is let in, since a trace
knows its answers' lengths. A tenant that had nothing to send begins with the least counter of those that
wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from fractions import Fraction

from kvcache_sim.engine import HANDOVER, NO_MACHINE, Engine, Event
from kvcache_sim.serving.tenants.settings import TenancySettings, TenantSettings
from kvcache_sim.units import NS_PER_S


class _Tenant:
    """One tenant's queue, its counter and its bucket of tokens."""

    def __init__(self, settings: TenantSettings) -> None:
        self.settings = settings
        self.waiting: deque[int] = deque()
        #: Tokens given so far by weight.
        self.counter = Fraction(0)
        self._weight = Fraction(settings.weight).limit_denominator(10**6)
        #: Tokens times ns in a second that it may send now, as of a time.
        self._level = settings.burst_tokens * NS_PER_S
        self._as_of_ns = 0

    def come_back(self, least: Fraction) -> None:
        """Begin with the least counter of those that wait: a rest earns nothing."""
        self.counter = max(self.counter, least)

    def charge(self, tokens: int) -> None:
        """Count what is given to it."""
        self.counter += tokens / self._weight
        self._level -= tokens * NS_PER_S

    def allowed_ns(self, tokens: int, now_ns: int) -> int:
        """Return when a request of so many tokens may go: one above the burst waits for a full bucket."""
        rate, burst = self.settings.tokens_per_s, self.settings.burst_tokens * NS_PER_S
        if rate is None:
            return now_ns
        self._level = min(self._level + (now_ns - self._as_of_ns) * rate, burst)
        self._as_of_ns = now_ns
        missing = min(tokens * NS_PER_S, burst) - self._level
        return now_ns if missing <= 0 else now_ns + -(-missing // rate)


class TenantGate:
    """Lets requests in, at the end of an instant; until then they wait. Cost: a look at each tenant."""

    def __init__(
        self,
        settings: TenancySettings,
        names: Sequence[str],
        tenant_of: Sequence[int],
        tokens_of: Sequence[int],
        engine: Engine,
    ) -> None:
        self._tenants = [_Tenant(settings.of(name)) for name in names]
        self._tenant_of, self._tokens_of = tenant_of, tokens_of
        self._most, self._engine = settings.max_in_flight, engine
        self._in_flight = 0
        self._admit: Callable[[int], None] | None = None
        self._event: Event | None = None

    def __len__(self) -> int:
        """Return how many requests wait here."""
        return sum(len(tenant.waiting) for tenant in self._tenants)

    def open_to(self, admit: Callable[[int], None]) -> None:
        """Say who takes the number of each request that is let in."""
        self._admit = admit

    def arrive(self, request: int) -> None:
        """Take a request."""
        tenant = self._tenants[self._tenant_of[request]]
        if not tenant.waiting:
            others = [own.counter for own in self._tenants if own.waiting]
            if others:
                tenant.come_back(min(others))
        tenant.waiting.append(request)
        self._look_at(self._engine.now_ns)

    def closed(self) -> None:
        """Hear that a request is done."""
        self._in_flight -= 1
        if any(tenant.waiting for tenant in self._tenants):
            self._look_at(self._engine.now_ns)

    def _look_at(self, at_ns: int) -> None:
        """Look at a time whom to let in, or earlier where that is due already."""
        if self._event is not None:
            if self._event[0] <= at_ns:
                return
            self._engine.cancel(self._event)
        self._event = self._engine.schedule(at_ns, HANDOVER, NO_MACHINE, self._look)

    def _look(self, _: object) -> None:
        self._event = None
        now = self._engine.now_ns
        later: list[int] = []
        while self._most is None or self._in_flight < self._most:
            able = []
            later = []
            for index, tenant in enumerate(self._tenants):
                if tenant.waiting:
                    at_ns = tenant.allowed_ns(self._tokens_of[tenant.waiting[0]], now)
                    if at_ns <= now:
                        able.append((tenant.settings.priority, tenant.counter, index))
                    else:
                        later.append(at_ns)
            if not able:
                break
            self._admit_one(self._tenants[min(able)[2]])
        if later:
            self._look_at(min(later))

    def _admit_one(self, tenant: _Tenant) -> None:
        request = tenant.waiting.popleft()
        tenant.charge(self._tokens_of[request])
        self._in_flight += 1
        assert self._admit is not None, "the gate was opened"
        self._admit(request)
