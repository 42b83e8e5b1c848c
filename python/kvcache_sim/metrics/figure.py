"""A figure of ``summary.json``: its name, its unit and its definition."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple


class Figure(NamedTuple):
    """One figure, or a family of figures with the same meaning.

    The name is dotted; a part such as ``<tier>`` stands for each of its family
    (``docs/data/figure-families.toml`` lists the families). The unit is "" for counts, for texts, and for
    lists of either.
    """

    name: str
    unit: str
    meaning: str

    @property
    def key(self) -> str:
        """The name without its families: its key in ``definitions`` of the summary."""
        return re.sub(r"\.<\w+>", "", self.name)


def definitions(figures: Iterable[Figure]) -> dict[str, str]:
    """Return the meaning of each figure by its key."""
    return {figure.key: figure.meaning for figure in figures}


def share_of(part: int, whole: int) -> float | None:
    """Return a part's share of a whole; None if there is nothing."""
    return part / whole if whole else None
