"""The best cells of a study when there is more than one goal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvcache_sim.errors import UsageError
from kvcache_sim.metrics.names import resolve_metric


@dataclass(frozen=True, slots=True)
class Objective:
    """A number of the summary and whether less (``min``) or more (``max``) of it is better."""

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


def pareto_front(losses: Sequence[Sequence[float]]) -> list[int]:
    """Return the indices of the rows that no other row beats: at least as good in all goals, better in one.

    Equal rows stay together. Cost: O(n²) comparisons in the number of rows.
    """
    return [
        index
        for index, row in enumerate(losses)
        if not any(
            all(a <= b for a, b in zip(other, row, strict=True)) and tuple(other) != tuple(row)
            for other in losses
        )
    ]
