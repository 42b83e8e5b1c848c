"""The specification with staged reads of remote disks, which no seed asks for: a model of the core's rules.

A part on another machine's disk is first copied to that machine's CPU, if it has free blocks, and read there.
"""

from kvcache_sim.base.tiers import STAGING
from kvcache_sim.spec.mover import Mover, Part, is_staged, stage_up
from kvcache_sim.spec.remote import RemoteReads


class StagedReads(RemoteReads):
    """The reads of one machine, from the CPUs of others."""

    def fetch(self, request: int, part: Part, now_ns: int) -> int | None:
        assert part.away is not None
        (owner, tier), blocks = part.away, (part.start, part.end)
        there = self.movers[owner].store.match_below(request, *blocks)
        if there != [(tier, *blocks, part.by)]:
            return None  # staging an earlier part has pushed this one out there
        return super().fetch(request, part, now_ns)

    def _source(self, request: int, part: Part, now_ns: int) -> tuple[Mover, int, int]:
        there, tier, by = super()._source(request, part, now_ns)
        if tier > STAGING:
            copies = stage_up(there.store, request, (part.start, part.end), (tier, by), now_ns)
            there.issue()
            if is_staged(copies):
                tier, by = STAGING, copies[-1][1]
        return there, tier, by
