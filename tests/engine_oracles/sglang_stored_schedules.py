"""SGLang's own Scheduler over HiCache with a storage, against ``replica.scheduler: sglang``.

As ``sglang_schedules``, with the threads of the engine's controller under the virtual clock (``sglang_threads``).
Prompts come twice. Drawn besides: the storage's size and speed, the threshold of a prefetch, how long a request
waits for it. FOLDER STREAMS FIRST.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine_oracles.sglang_schedules import STOPS, Asked, Stored, program
from engine_oracles.streams import repeated


class AskedOfStorage(Asked):
    """A stream's requests and settings, with a storage."""

    def __init__(self, seed: int, wheel: str = "sglang==0.5.23") -> None:
        super().__init__(seed, wheel)
        draw = random.Random(seed + 1_000_000)
        trace = repeated(self.trace, draw)
        self.trace = replace(trace, arrival_ns=trace.arrival_ns * draw.choice([1, 1, 6]))
        self.write = draw.choice(["through", "through", "through", "back", "selective"])
        self.host_pages = max(2, int(self.pages * draw.choice([0.6, 1, 2, 4])))
        self.stop = draw.choice(list(STOPS))
        slow = [2_000, 20_000, 200_000] if self.token_ns else [0]
        write_ns, read_ns = (draw.choice(slow) * self.page for _ in range(2))
        self.timeout_ns, self.timeout_per_ki_token_ns = (
            draw.choice([0, 10**6, 30 * 10**6]),
            draw.choice([0, 20 * 10**6]),
        )
        self.storage = Stored(
            draw.choice([None, None, None, None, self.host_pages + 20, 3 * self.pages + 20]),
            (write_ns, read_ns),
            draw.choice([1, 16, 16, 64]),
            STOPS[self.stop],
            Fraction(self.timeout_ns, 10**9),
            Fraction(self.timeout_per_ki_token_ns, 10**9),
        )


if __name__ == "__main__":
    sys.exit(program("SGLang stored schedules", AskedOfStorage))
