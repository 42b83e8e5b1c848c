"""SGLang's own Scheduler without HiCache, against ``replica.scheduler: sglang``.

As ``sglang_schedules``, without a host. Drawn besides: priorities and their preemption, a cache that keeps nothing.
FOLDER STREAMS FIRST.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine_oracles.sglang_schedules import Asked, program


class AskedAlone(Asked):
    """A stream's requests and settings, without a host."""

    def __init__(self, seed: int, wheel: str = "sglang==0.5.23") -> None:
        super().__init__(seed, wheel)
        draw = random.Random(seed + 2_000_000)
        self.host_pages, self.enabled = 0, draw.random() < 0.75
        # without a host the tree is the classic one, whose split nodes are new
        self.strategy = draw.choice(["lru", "lru", "lfu", "slru"])
        if draw.random() < 0.7:
            classes = [draw.randint(0, draw.choice([1, 3, 30])) for _ in range(len(self.trace))]
            self.trace = replace(self.trace, priority=np.array(classes, np.int64))
            policy = self.settings.schedule_policy
            self.settings = replace(
                self.settings,
                queue_order="priority",
                schedule_policy=policy if policy == "lof" else "fcfs",
                priority_preemption=draw.choice([None, 0, 0, 1, 10]),
            )


if __name__ == "__main__":
    sys.exit(program("SGLang plain schedules", AskedAlone))
