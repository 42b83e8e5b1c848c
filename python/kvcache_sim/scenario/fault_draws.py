"""The faults of a scenario's rates, drawn: each kind on each machine from a stream of its own."""

from __future__ import annotations

from collections.abc import Iterator

from kvcache_sim.errors import UsageError
from kvcache_sim.rng.streams import stream
from kvcache_sim.scenario.fleet_section import FaultSection, FleetSection
from kvcache_sim.values import Value

#: Most faults of one run, all kinds together.
_MOST = 20_000


class Fault(Value):
    """One fault: what fails when, on which of the machines that were there from the start, and until when.

    ``place`` is not a machine's number: whoever joins after a repair stands in the same place.
    """

    at_ns: int
    kind: FaultSection
    place: int
    #: None: it stays as it is.
    until_ns: int | None


def drawn_faults(fleet: FleetSection, machines: int, seed: int) -> list[Fault]:
    """Return the faults until ``faults_until`` in order of time, ties by kind and place.

    Raises UsageError for more than 20,000 of them. Cost: one draw a fault.
    """
    found: list[Fault] = []
    for number, kind in enumerate(fleet.faults):
        places = 1 if kind.do == "lose-index" else machines
        for place in range(places):
            for fault in _of(kind, (number, place), fleet.faults_until or 0, seed):
                found.append(fault)
                if len(found) > _MOST:
                    raise UsageError("too many faults", "fleet.faults", expected=f"at most {_MOST:,} of them")
    return sorted(found, key=lambda fault: fault.at_ns)


def _of(kind: FaultSection, numbered: tuple[int, int], until_ns: int, seed: int) -> Iterator[Fault]:
    number, place = numbered
    draws = stream(seed, f"fleet.faults.{number}.{kind.do}.{place}")
    now = 0
    while True:
        now += max(1, round(draws.exponential(kind.mtbf)))
        if now >= until_ns:
            return
        ends = None if kind.repair is None else now + kind.repair
        yield Fault(now, kind, place, ends)
        if ends is None and kind.do in ("lose", "slow"):
            return
        now = ends or now
