"""Goals, for example ``ttft.p99:min,cost:min``, and the Pareto front of choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvcache_sim.base.errors import UsageError
from kvcache_sim.metrics.names import resolve_metric


@dataclass(frozen=True, slots=True)
class Objective:
    """A number of the summary and its direction: less (``min``) or more (``max``) is better."""

    metric: str
    smaller_is_better: bool

    def loss(self, value: float) -> float:
        """Return the value with its sign turned so that less is better."""
        return value if self.smaller_is_better else -value


def parse_objectives(text: str, where: str = "--pareto") -> tuple[Objective, ...]:
    """Return the goals of ``ttft.p99:min,cost:min``; raises ``UsageError``."""
    objectives = []
    for part in text.split(","):
        name, _, direction = part.strip().partition(":")
        if direction not in ("min", "max"):
            raise UsageError(
                "not a goal", where=where, got=repr(part), expected="METRIC:min or METRIC:max, by commas"
            )
        objectives.append(Objective(resolve_metric(name, where), direction == "min"))
    return tuple(objectives)


def losses(row: Mapping[str, object], objectives: Sequence[Objective]) -> tuple[float, ...] | None:
    """Return a row's losses in all goals, or None if it lacks a number."""
    values = [row.get(objective.metric) for objective in objectives]
    if not all(isinstance(value, (int, float)) for value in values):
        return None
    return tuple(o.loss(float(str(value))) for o, value in zip(objectives, values, strict=True))


def pareto_front(rows: Sequence[Sequence[float] | None]) -> list[int]:
    """Return the indices of the rows that no other row beats: at least as good in all goals, better in one.

    Equal rows stay together; a row that is None is never on the front. Cost: O(n²) comparisons.
    """
    known = [tuple(row) for row in rows if row is not None]

    def is_beaten(mine: tuple[float, ...]) -> bool:
        return any(o != mine and all(a <= b for a, b in zip(o, mine, strict=True)) for o in known)

    return [index for index, row in enumerate(rows) if row is not None and not is_beaten(tuple(row))]
