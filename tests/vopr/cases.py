"""Cases by number: the kinds with their shares, and one case run to its outcome."""

import random
import tempfile
from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, cast

from vopr import properties
from vopr.finding import Finding, Kind

#: Modules of the kinds of cases, as they follow each other. The models of engines, routers and links that scenarios
#: do not reach are property tests: about half of the cases are such.
_TURNS = (*("properties", "scenarios", "properties", "tight") * 4, "live", "coordinator")
KINDS = tuple(dict.fromkeys(_TURNS))


class Case(NamedTuple):
    """A case by its kind and the seed of its draw."""

    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.seed}"


def kind_of(case: Case) -> Kind:
    """Return the functions of a case's kind."""
    return cast(Kind, import_module(f"vopr.{case.kind}"))


def case_of(seed: int, number: int, kinds: Collection[str] = ()) -> Case:
    """Return the case of a number in the search of a seed; each property test once before any again."""
    turns = [kind for kind in _TURNS if not kinds or kind in kinds]
    kind, drawn_seed = turns[number % len(turns)], random.Random(f"{seed} {number}").randrange(1 << 40)
    if kind == "properties":
        many = len(properties.tests())
        own = number // len(turns) * turns.count(kind) + turns[: number % len(turns)].count(kind)
        order = random.Random(f"{seed} {own // many}").sample(range(many), many)
        drawn_seed += order[own % many] - drawn_seed % many
    return Case(kind, drawn_seed)


def outcome(case: Case) -> tuple[str, str]:
    """Run a case; return how it ended and "", or its finding's oracle and text."""
    kind = kind_of(case)
    with tempfile.TemporaryDirectory(prefix="vopr") as folder:
        try:
            return kind.run(kind.draw(case.seed), Path(folder)), ""
        except Finding as finding:
            return finding.key[0], str(finding)


def drawn(case: Case) -> Any:
    """Return the drawn case."""
    return kind_of(case).draw(case.seed)
