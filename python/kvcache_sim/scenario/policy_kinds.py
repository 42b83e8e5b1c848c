"""Keys that name a policy: a built-in one, ``file.py:Name``, ``pkg.mod:Name`` or an entry point."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from kvcache_sim.cache.admission import ADMISSION
from kvcache_sim.cache.fetch import FETCH
from kvcache_sim.cache.prefetch import PREFETCH
from kvcache_sim.cache.write import WRITE
from kvcache_sim.channels.choice import CHANNEL_CHOICE
from kvcache_sim.policies.plugins.choice import Kind
from kvcache_sim.scenario.yaml_tree import Path as KeyPath
from kvcache_sim.serving.membership.scaling_policy import SCALING
from kvcache_sim.serving.queue import QUEUE_ORDER
from kvcache_sim.serving.router.registry import ROUTER


def _named(kind: Kind) -> Meta:
    """Return the metadata of a key that names a policy; ``refuse_unknown_policies`` checks the name."""
    known: list[Any] = [{"enum": list(kind.names)}, {"type": "string"}]
    return Meta(extra={"kind": kind}, extra_json_schema={"anyOf": known})


AdmissionName = Annotated[str, _named(ADMISSION)]
ChannelChoiceName = Annotated[str, _named(CHANNEL_CHOICE)]
FetchName = Annotated[str, _named(FETCH)]
PrefetchName = Annotated[str, _named(PREFETCH)]
QueueOrderName = Annotated[str, _named(QUEUE_ORDER)]
RouterName = Annotated[str, _named(ROUTER)]
ScalingName = Annotated[str, _named(SCALING)]
WriteName = Annotated[str, _named(WRITE)]

#: Every setting that names a policy → its kind, as ``kvsim policies list`` prints them.
POLICY_KINDS: dict[KeyPath, Kind] = {
    ("write", "policy"): WRITE,
    ("fetch", "policy"): FETCH,
    ("prefetch", "policy"): PREFETCH,
    ("cache", "admission"): ADMISSION,
    ("replica", "queue_order"): QUEUE_ORDER,
    ("router", "policy"): ROUTER,
    ("handover", "router"): ROUTER,
    ("channel_choice",): CHANNEL_CHOICE,
    ("fleet", "scaling", "policy"): SCALING,
}
