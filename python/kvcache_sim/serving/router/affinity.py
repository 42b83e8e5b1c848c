"""Session affinity in front of a router: sessions, or siblings, bound to machines, with a time to live.

Sources: Dynamo's ``--router-session-affinity-ttl-secs`` in its hard form; aisimulate's ``router.affinity``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

from kvcache_sim.base.values import Struct, field
from kvcache_sim.serving.router.contract import Router, RouterView
from kvcache_sim.serving.sequence import Arrival
from kvcache_sim.workload.trace import NO_SESSION, Trace

if TYPE_CHECKING:
    from kvcache_sim.serving.router.registry import MakeRouter
    from kvcache_sim.serving.settings import AffinitySettings

_BY_CACHES = ("longest-prefix", "prefill-cost", "prefill-time", "overlap-cost", "dynamo-kv")
#: Routers that choose from the machines' state alone, or can be notified of a request that passes them by.
CAN_BE_PASSED = frozenset(("round-robin", "random", "least-loaded", "power-of-two", *_BY_CACHES))


class Binding(Struct):
    """A machine for the requests of one key, those in flight, and the time (ns) when the last one left."""

    machine: int
    active: set[int] = field(default_factory=set)
    released_ns: int = 0

    def take(self, machine: int, request: int) -> None:
        """Bind to a machine, for a request in flight."""
        self.machine = machine
        self.active.add(request)

    def release(self, request: int, now_ns: int) -> None:
        """Release a request that has left."""
        self.active.discard(request)
        self.released_ns = now_ns


class Bindings:
    """The bindings of a cluster; they outlive the routers, which change with the machines.

    Siblings are bound together if the trace has parents; otherwise each session has its own key.
    """

    def __init__(self, settings: AffinitySettings, trace: Trace, now_ns: Callable[[], int]) -> None:
        self._ttl_ns, self.now_ns = settings.ttl_ns, now_ns
        self._parent: Sequence[int] = trace.parent.tolist()
        self._of_key: dict[Hashable, Binding] = {}
        self._of_request: dict[int, Binding] = {}

    def bound(self, sequence: Arrival) -> int | None:
        """Return the machine that a request is bound to; None: it is bound to none any more."""
        found = self._of_key.get(self._key(sequence))
        if found is None or (not found.active and self.now_ns() - found.released_ns > self._ttl_ns):
            return None
        return found.machine

    def bind(self, sequence: Arrival, machine: int) -> None:
        """Bind a request's key to its machine until its requests have left, and the time to live after."""
        key = self._key(sequence)
        if key == NO_SESSION:
            return
        found = self._of_key.setdefault(key, Binding(machine))
        found.take(machine, sequence.request)
        self._of_request[sequence.request] = found

    def closed(self, request: int) -> None:
        """Release a request that has left."""
        found = self._of_request.pop(request, None)
        if found is not None:
            found.release(request, self.now_ns())

    def _key(self, sequence: Arrival) -> Hashable:
        if self._parent and (parent := self._parent[sequence.request]) != NO_SESSION:
            return "started by", parent
        return sequence.session


class Affine:
    """The machine that a request is bound to; a router chooses where there is none, or it does not serve."""

    def __init__(self, view: RouterView, router: Router, bindings: Bindings) -> None:
        self._router, self._bindings = router, bindings
        self._numbers = [replica.machine for replica in view.replicas]
        self._index = {number: index for index, number in enumerate(self._numbers)}
        self._passed: Callable[[Arrival, int], None] = getattr(router, "passed", lambda *_: None)

    def choose(self, sequence: Arrival) -> int:
        """Return the machine of a request."""
        bound = self._bindings.bound(sequence)
        chosen = None if bound is None else self._index.get(bound)
        if chosen is None:
            chosen = self._router.choose(sequence)
        else:
            self._passed(sequence, chosen)
        self._bindings.bind(sequence, self._numbers[chosen])
        return chosen


def with_affinity(make: MakeRouter, bindings: Bindings | None) -> MakeRouter:
    """Return a constructor of routers with bindings in front of them; ``make`` itself without bindings."""
    return make if bindings is None else lambda view: Affine(view, make(view), bindings)
