"""A gateway's queue: each tenant's requests in order, admitted by class, weighted share and token rate.

The next request is that of the tenant with the smallest class, of these the tenant with the fewest tokens
per weight. This is the virtual token counter of Sheng et al., "Fairness in Serving Large Language Models"
(OSDI 2024), algorithm 2. Both kinds of token weigh 1 and are counted at admission, since a trace contains
the lengths of its answers. A tenant that was idle resumes with the least counter of the waiting tenants.

A tenant sends the oldest of its waiting requests, or one at random, as a closed-loop client does that takes
any user who is ready.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from fractions import Fraction

from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.engine import HANDOVER, NO_MACHINE, Engine, Event
from kvcache_sim.serving.tenants.settings import TenancySettings, TenantSettings

#: Picks one of so many waiting requests.
Pick = Callable[[int], int]


def random_pick(seed: int) -> Pick:
    """Return uniform picks from the stream ``tenants.order`` of a seed."""
    from kvcache_sim.base.rng import stream

    draws = stream(seed, "tenants.order")
    return lambda count: int(draws.integers(count))


class _Tenant:
    """One tenant's queue, its counter and its bucket of tokens."""

    def __init__(self, settings: TenantSettings) -> None:
        self.settings = settings
        self.waiting: deque[int] = deque()
        #: Tokens admitted so far, divided by the weight.
        self.counter = Fraction(0)
        self._weight = Fraction(settings.weight).limit_denominator(10**6)
        #: Token bucket: tokens × ns per second that it may send, as of a time.
        self._level = settings.burst_tokens * NS_PER_S
        self._as_of_ns = 0
        self._is_picked = False

    def choose(self, pick: Pick | None) -> None:
        """Put the request to send next at the head; once picked it stays there until it is sent."""
        if pick is not None and not self._is_picked:
            self._is_picked, at = True, pick(len(self.waiting))
            request = self.waiting[at]
            del self.waiting[at]
            self.waiting.appendleft(request)

    def send(self) -> int:
        """Remove and return the request at the head."""
        self._is_picked = False
        return self.waiting.popleft()

    def come_back(self, least: Fraction) -> None:
        """Resume with the least counter of those that wait: idle time earns no credit."""
        self.counter = max(self.counter, least)

    def charge(self, tokens: int) -> None:
        """Count tokens of an admitted request."""
        self.counter += tokens / self._weight
        self._level -= tokens * NS_PER_S

    def allowed_ns(self, tokens: int, now_ns: int) -> int:
        """Return the earliest admission (ns) of a request; above the burst it waits for a full bucket."""
        rate, burst = self.settings.tokens_per_s, self.settings.burst_tokens * NS_PER_S
        if rate is None:
            return now_ns
        self._level = min(self._level + (now_ns - self._as_of_ns) * rate, burst)
        self._as_of_ns = now_ns
        missing = min(tokens * NS_PER_S, burst) - self._level
        return now_ns if missing <= 0 else now_ns + -(-missing // rate)


class TenantGate:
    """Admits waiting requests at the end of an instant. Cost: one pass over the tenants."""

    def __init__(
        self,
        settings: TenancySettings,
        names: Sequence[str],
        tenant_of: Sequence[int],
        tokens_of: Sequence[int],
        engine: Engine,
        pick: Pick | None = None,
    ) -> None:
        self._tenants = [_Tenant(settings.of(name)) for name in names]
        self._tenant_of, self._tokens_of = tenant_of, tokens_of
        self._most, self._engine, self._pick = settings.max_in_flight, engine, pick
        self._in_flight = 0
        self._admit: Callable[[int], None] | None = None
        self._event: Event | None = None

    def __len__(self) -> int:
        """Return the number of waiting requests."""
        return sum(len(tenant.waiting) for tenant in self._tenants)

    def open_to(self, admit: Callable[[int], None]) -> None:
        """Set the callback for each admitted request."""
        self._admit = admit

    def arrive(self, request: int) -> None:
        """Add a request to its tenant's queue."""
        tenant = self._tenants[self._tenant_of[request]]
        if not tenant.waiting:
            others = [waiting_tenant.counter for waiting_tenant in self._tenants if waiting_tenant.waiting]
            if others:
                tenant.come_back(min(others))
        tenant.waiting.append(request)
        self._look_at(self._engine.now_ns)

    def closed(self) -> None:
        """Count a finished request, and admit the next ones."""
        self._in_flight -= 1
        if any(tenant.waiting for tenant in self._tenants):
            self._look_at(self._engine.now_ns)

    def _look_at(self, at_ns: int) -> None:
        """Schedule the next admission at ``at_ns``, unless an earlier one is scheduled."""
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
                    if tenant.settings.tokens_per_s is not None:
                        tenant.choose(self._pick)
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
        tenant.choose(self._pick)
        request = tenant.send()
        tenant.charge(self._tokens_of[request])
        self._in_flight += 1
        assert self._admit is not None, "the gate was opened"
        self._admit(request)
