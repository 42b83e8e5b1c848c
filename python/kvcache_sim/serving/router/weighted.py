"""Weighted scorers: the endpoint picker of llm-d and of the Kubernetes gateway API."""

from __future__ import annotations

import numpy as np

from kvcache_sim.base.rng import stream
from kvcache_sim.serving.router.contract import Needs, RouterView
from kvcache_sim.serving.router.prefix_index import EstimatedIndex, PreciseIndex
from kvcache_sim.serving.router.scorers import SCORERS, Decision
from kvcache_sim.serving.sequence import Arrival


class Weighted:
    """The greatest sum of weight × score over ``router.scorers``; ties are drawn at random.

    Scores are clipped to 0–1 and not divided by the weights. Queue, running and KV use are those of the
    last poll (``router.view.interval``, 50 ms in llm-d); counts of sent requests are the router's own. With
    ``index.kind: truth`` the prefix is that of the machines' caches (``precise``), with ``estimated`` that of
    the prompts sent there. Ties: the stream ``router``.

    Why: Signals of different kinds, each from 0 to 1, add up by an operator's weights.
    Example: ``{prefix: 3, queue: 2}``: scores 0.5 and 1 give 3.5, scores 1 and 0 give 3.
    Source: pkg/epp/scheduling/scheduler_profile.go, pkg/epp/framework/plugins/scheduling/scorer and
    picker/maxscore of llm-d/llm-d-router at ebab6879.
    Cost: one lookup on all machines, and array arithmetic over the machines per scorer.
    """

    needs = Needs(caches=True, engine_loads=True, published=True, keys=("scorers",), own_index="estimated")

    def __init__(self, view: RouterView) -> None:
        self._view = view
        estimated = view.settings.index_kind == "estimated"
        self._index = EstimatedIndex(view) if estimated else PreciseIndex(view)
        self._scorers = [(weight, SCORERS[name]()) for name, weight in view.settings.scorers.items()]
        self._draw = stream(view.seed, "router")

    def choose(self, sequence: Arrival) -> int:
        """Return the machine of the greatest sum."""
        decision = Decision(self._view, sequence, self._index.match(sequence))
        total = np.zeros(len(self._view.replicas))
        for weight, scorer in self._scorers:
            total += weight * np.minimum(np.maximum(scorer.scores(decision), 0), 1)
        best = np.flatnonzero(total == total.max())
        chosen = int(best[0] if len(best) == 1 else best[self._draw.integers(len(best))])
        self._index.sent(sequence, chosen)
        for _, scorer in self._scorers:
            scorer.sent(decision, chosen)
        return chosen
