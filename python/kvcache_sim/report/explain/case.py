"""The input of a sentence: a run with the analyses that several sentences share."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from kvcache_sim.base.tiers import TIERS
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.reuse import Reuse, reuse_of
from kvcache_sim.scenario.load import Scenario, scenario_of_run


class Case:
    """A finished run to explain; each analysis is computed once, at its first use."""

    def __init__(self, run: FinishedRun) -> None:
        self.run = run

    @cached_property
    def reuse(self) -> Reuse | None:
        """Return the tokens that could have been reused; None where the trace is not available."""
        return reuse_of(self.run)

    @cached_property
    def scenario(self) -> Scenario:
        """Return the checked scenario of the run."""
        return scenario_of_run(self.run.scenario_text, self.run.directory)

    @cached_property
    def tiers(self) -> tuple[str, ...]:
        """Return the tiers that the machines have, fast to slow."""
        machines = self.scenario.settings.machines
        return tuple(tier for tier in TIERS if any(tier == t.name for m in machines for t in m.tiers))

    @property
    def block_tokens(self) -> int:
        """Return the tokens of a block that hits: the common block of a model's groups."""
        return self.scenario.settings.cache.block_size_tokens

    @property
    def prompt_tokens(self) -> int:
        """Return the prompt tokens of finished requests."""
        return int(self.run.finished["input_tokens"].sum())

    @property
    def dropped_blocks(self) -> int:
        """Blocks that left the cache unwritten."""
        return int(self.run.summary["cache"].get("dropped_blocks", 0))

    def evictions(self, tier: str) -> int:
        """Return the blocks evicted from a tier."""
        return int(self.run.summary["cache"]["evictions"][tier])

    def hit_tokens(self, tier: str) -> int:
        """Return the tokens served from a tier."""
        return int(self.run.finished[f"cached_{tier}_tokens"].sum())

    def mean_ms(self, column: str) -> float:
        """Return the mean of a column of times, in ms."""
        values: Any = self.run.finished[column]
        return float(values.mean()) / 1e6 if len(values) else 0.0

    @cached_property
    def ttft_ms(self) -> float:
        """Return the mean TTFT in ms."""
        rows = self.run.finished
        ttft = rows["first_token_ns"] - rows["arrival_ns"]
        return float(ttft.mean()) / 1e6 if len(ttft) else 0.0


def percent(share: float) -> str:
    """Return a share for people; shares below 0.05 % keep two significant digits."""
    return f"{100 * share:.1f} %" if share >= 0.0005 or share == 0 else f"{100 * share:.2g} %"
