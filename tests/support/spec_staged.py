"""The specification with staged reads of remote disks, which no seed asks for: a model of the core's rules.

A part on another machine's disk is first copied to that machine's CPU, if it has free blocks, and read there.
"""

from kvcache_sim.base.tiers import STAGING
from kvcache_sim.spec.block_store import Found, Part
from kvcache_sim.spec.mover import is_staged, stage_up
from kvcache_sim.spec.remote import RemoteReads, Source


class StagedReads(RemoteReads):
    """The reads of one machine, from the CPUs of others."""

    def fetch(self, request: int, part: Part, now_ns: int) -> int | None:
        assert part.away is not None
        owner, tier = part.away
        there = self.movers[owner].store.match_below(request, part.start, part.end)
        if there != [Found(tier, part.start, part.end, part.by)]:
            return None  # staging an earlier part has pushed this one out there
        return super().fetch(request, part, now_ns)

    def _source(self, request: int, part: Part, now_ns: int) -> Source:
        source = super()._source(request, part, now_ns)
        if source.tier > STAGING:
            copies = stage_up(source.owner.store, request, part._replace(tier=source.tier), now_ns)
            source.owner.issue()
            if is_staged(copies):
                return source._replace(tier=STAGING, by=copies[-1].move)
        return source
