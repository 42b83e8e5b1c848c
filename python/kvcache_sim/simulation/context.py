"""Answers that end at the context length, before a run: no engine sees a longer one (seed 000, 4.5)."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.workload.context_window import ContextTokens, with_answers_in_context
from kvcache_sim.workload.readers.stream import TraceStream
from kvcache_sim.workload.trace import Trace

#: A trace, or one that is read during the run.
Requests = TypeVar("Requests", Trace, TraceStream, Trace | TraceStream)


def answers_in_context(settings: ClusterSettings, requests: Requests) -> Requests:
    """Return requests whose answers end at the context of the machines that serve them.

    A prompt that leaves no token for an answer stays as it is, for the machine to reject.
    """
    if isinstance(requests, TraceStream):
        context = context_tokens(settings, requests.first)
        if context is not None:
            requests.end_answers_at(context)
        return requests
    context = context_tokens(settings, requests)
    return requests if context is None else with_answers_in_context(requests, context)


def context_tokens(settings: ClusterSettings, trace: Trace) -> ContextTokens | None:
    """Return the context of the requests: one number, or by request where a fleet serves several models."""
    limits = [machine.replica.max_model_len for machine in settings.machines]
    if settings.models is None or len(set(limits)) == 1:
        return min((tokens for tokens in limits if tokens is not None), default=None)
    known = np.array([np.iinfo(np.int64).max if tokens is None else tokens for tokens in limits], np.int64)
    first = [settings.models.of_machine.index(model) for model in range(len(settings.models.names))]
    by_request: ContextTokens = known[first][trace.model]
    return by_request
