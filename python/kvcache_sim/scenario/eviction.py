"""Which eviction policies a scenario may name, by the rules of reuse that it runs under."""

from __future__ import annotations

from difflib import get_close_matches

from kvcache_sim.cache.policies.registry import POLICIES
from kvcache_sim.errors import UsageError
from kvcache_sim.scenario.schema import ScenarioModel
from kvcache_sim.scenario.yaml_tree import Tree

#: Names of ``cache.policy`` under each ``cache.semantics``: vLLM's free queue is one order.
EVICTION: dict[str, tuple[str, ...]] = {
    "tree": ("lru",),
    "vllm": ("lru",),
    "sglang": tuple(row.variant for row in POLICIES if row.family == "sglang"),
}


def refuse_unknown_eviction(model: ScenarioModel, tree: Tree) -> None:
    """Raise UsageError for a ``cache.policy`` that ``cache.semantics`` does not have."""
    name, known = model.cache.policy, EVICTION[model.cache.semantics]
    if name in known:
        return
    close = get_close_matches(name, known, n=1)
    raise UsageError(
        f"cache.policy: no such policy under semantics {model.cache.semantics}",
        where=tree.place(("cache", "policy")),
        got=repr(name),
        expected=f"did you mean {close[0]}?" if close else f"one of {', '.join(known)}",
    )
