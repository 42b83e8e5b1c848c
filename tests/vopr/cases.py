"""Cases by number: the kinds with their shares, and one case run to its outcome."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, cast

from vopr.finding import Finding, Kind

#: Module of each kind, and its share of the cases.
KINDS = {"scenarios": 60, "properties": 20, "live": 8, "coordinator": 8}


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
    """Return the case of a number in the search of a seed."""
    draw = random.Random(f"{seed} {number}")
    names = list(kinds or KINDS)
    return Case(draw.choices(names, [KINDS[name] for name in names])[0], draw.randrange(1 << 40))


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
