"""SGLang's own Scheduler over HiCache with a storage, against ``replica.scheduler: sglang``.

As ``sglang_schedules``, with the threads of the engine's controller under the virtual clock (``sglang_threads``).
Drawn besides: the storage's size and speed, the threshold of a prefetch, how long a request waits for it.
FOLDER STREAMS FIRST.
"""

from __future__ import annotations

import random
import sys
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine_oracles.sglang_schedules import STOPS, Asked, Stored, program


class AskedOfStorage(Asked):
    """A stream's requests and settings, with a storage."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        draw = random.Random(seed + 1_000_000)
        self.host_pages = max(2, int(self.pages * draw.choice([0.3, 0.6, 1, 2])))
        self.stop = draw.choice(list(STOPS))
        slow = [2_000, 20_000, 200_000] if self.token_ns else [0]
        write_ns, read_ns = (draw.choice(slow) * self.page for _ in range(2))
        self.timeout_ns, self.timeout_per_ki_token_ns = (
            draw.choice([0, 10**6, 30 * 10**6]),
            draw.choice([0, 20 * 10**6]),
        )
        self.storage = Stored(
            draw.choice([None, None, self.host_pages + 20, 3 * self.pages + 20]),
            (write_ns, read_ns),
            draw.choice([1, 16, 64, 128]),
            STOPS[self.stop],
            Fraction(self.timeout_ns, 10**9),
            Fraction(self.timeout_per_ki_token_ns, 10**9),
        )


if __name__ == "__main__":
    sys.exit(program("SGLang stored schedules", AskedOfStorage))
