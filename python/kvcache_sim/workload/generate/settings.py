"""What every workload has: how many requests, of what blocks, when they come and how long answers are."""

from __future__ import annotations

from kvcache_sim.errors import UsageError
from kvcache_sim.values import dataclass
from kvcache_sim.workload.generate.arrivals import Arrivals, Poisson
from kvcache_sim.workload.generate.chains import Chains
from kvcache_sim.workload.generate.chunk import Chunk, Draws
from kvcache_sim.workload.generate.fields import CheckedFields, arrival_process, choice, count, tokens
from kvcache_sim.workload.generate.lengths import Lengths


@dataclass(frozen=True, slots=True)
class Workload(CheckedFields):
    """Settings common to all kinds; a kind adds its own and says what a chunk of it is.

    In open loop ``arrivals`` start the units and later turns follow their think times alone. In closed loop
    a turn comes its think time after the previous answer; with ``concurrency`` N the first N units start at
    the arrivals and each later one when the unit N places before it has ended: N users. ``concurrency`` 0
    starts every unit at its arrival. Each unit is one of so many ``tenants``'s, drawn evenly; two tenants
    never share a block, as under salts of their own.
    """

    requests: int = count(1000, maximum=10**9)
    block_size: int = count(512, maximum=2**20)
    arrivals: Arrivals = arrival_process(Poisson(1.0))
    output_tokens: Lengths = tokens(128)
    loop: str = choice("open", ("open", "closed"))
    concurrency: int = count(0, minimum=0)
    tenants: int = count(1, maximum=10**6)

    def __post_init__(self) -> None:
        # A slotted dataclass is made twice, so the zero-argument form of super() does not find this class.
        CheckedFields.__post_init__(self)
        if self.loop == "open" and self.concurrency:
            raise UsageError(
                "has no effect in open loop", where="workload.concurrency", hint="set workload.loop: closed"
            )

        if self.tenants > 1 and not self.shares:
            what = "has no effect: no two units share a block anyway"
            raise UsageError(what, where="workload.tenants", got=str(self.tenants))

    @property
    def shares(self) -> bool:
        """Whether two units may show the same block."""
        return True

    def shared(self, seed: int) -> tuple[Chains, int]:
        """Return the texts that all chunks share, and the first id that they leave free."""
        raise NotImplementedError

    def chunk(self, shared: Chains, draws: Draws) -> Chunk:
        """Return one chunk, a function of the seed and the chunk's index alone."""
        raise NotImplementedError
