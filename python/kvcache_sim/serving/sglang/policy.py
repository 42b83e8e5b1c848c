"""Who of the queue SGLang's scheduler looks at first."""

from __future__ import annotations

from kvcache_sim.serving.settings import SchedulePolicy
from kvcache_sim.serving.sglang.sequence import SglangSequence
from kvcache_sim.serving.sglang.tree import PagedTree

#: A longer queue is left as it is under ``lpm``, and so many of its first are touched.
_MOST_MATCHED = 128
#: One in so many passes touches what the waiting requests would find.
_REFRESH_INTERVAL = 32
#: ``IN_BATCH_PREFIX_CACHING_CHECK_THRESHOLD`` and ``…_DEPRIORITIZE_THRESHOLD``.
_IN_BATCH_TOKENS = 32


class QueueOrder:
    """Puts a queue in order; look-ups make what they find recent (``SchedulePolicy.calc_priority``)."""

    def __init__(self, policy: SchedulePolicy, tree: PagedTree, page: int) -> None:
        self._policy, self._tree, self._page = policy, tree, page
        self._refreshes = 0

    def sort(self, waiting: list[SglangSequence]) -> None:
        """Put the queue in order, in place."""
        policy = self._policy
        if policy == "lpm" and len(waiting) > _MOST_MATCHED:
            policy = "fcfs"
        if policy == "lpm":
            behind = self._look_up(waiting)
            waiting.sort(key=lambda s: (s in behind, 0 if s in behind else -s.matched))
        elif policy == "dfs-weight":
            self._look_up(waiting)
            order = self._tree.depth_first([(s.state.request, s.found) for s in waiting])
            waiting[:] = [waiting[at] for at in order]
        else:
            if policy == "lof":
                waiting.sort(key=lambda s: -s.max_new)
            self._refresh(waiting)

    def _look_up(self, waiting: list[SglangSequence]) -> list[SglangSequence]:
        """Look all up; return those that go behind, since one before them shows the same beginning."""
        pages = -(-_IN_BATCH_TOKENS // self._page)
        shown, behind = set[int](), list[SglangSequence]()
        for s in waiting:
            request = s.state.request
            s.found = self._tree.find(request, s.known)
            if s.found <= _IN_BATCH_TOKENS and s.known >= pages * self._page:
                key = self._tree.key(request, pages - 1)
                if key in shown:
                    behind.append(s)
                shown.add(key)
        return behind

    def _refresh(self, waiting: list[SglangSequence]) -> None:
        """Now and then touch what the first of the queue would find, the very first last."""
        if not waiting or not self._tree.evicts_least_recent:
            return
        is_due = self._refreshes % _REFRESH_INTERVAL == 0
        self._refreshes += 1
        if is_due:
            for s in reversed(waiting[:_MOST_MATCHED]):
                self._tree.find(s.state.request, s.known)
