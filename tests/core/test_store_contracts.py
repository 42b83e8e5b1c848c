"""Classes that declare a contract of stores have every method of it, with its parameters by name and
order."""

import inspect
from typing import Any

import pytest
from kvcache_sim import _core
from kvcache_sim.cache.settings import CacheSettings, TierSettings
from kvcache_sim.cache.store import GpuStore, LoadingStore
from kvcache_sim.cache.store_kinds import SEMANTICS
from kvcache_sim.cache.tree_store import MarkingStore
from support.product.machines import StoreMaker
from support.small_traces import trace_of

#: Each store, and the widest contract that it declares.
DECLARED = {
    _core.Store: MarkingStore,
    _core.PoolStore: GpuStore,
    _core.RadixStore: LoadingStore,
    _core.TokenStore: GpuStore,
}


def promised(contract: type[Any]) -> dict[str, Any]:
    """Return the members of a contract, those of the contracts it extends among them."""
    return {
        name: member
        for base in contract.__mro__
        for name, member in vars(base).items()
        if not name.startswith("_") and getattr(base, "_is_protocol", False)
    }


def parameters(call: Any) -> list[tuple[str, bool]]:
    """Return the parameters after ``self``, and whether each may be left out."""
    each = list(inspect.signature(call).parameters.values())[1:]
    return [(p.name, p.default is not p.empty) for p in each]


@pytest.mark.parametrize("store", DECLARED, ids=lambda store: f"{store.__module__}.{store.__name__}")
def test_a_store_keeps_the_contract_it_declares(store: type[Any]) -> None:
    members = promised(DECLARED[store])
    assert len(members) >= 15, "a contract that promises nothing is kept by all"
    for name, member in members.items():
        kept = getattr(store, name, None)
        if isinstance(member, property):
            continue  # some keep it as an attribute: what is made has it, see below
        assert callable(kept), f"{store.__name__} lacks {name}"
        assert parameters(kept) == parameters(member), f"{store.__name__}.{name}"


CHOICES: dict[str, dict[str, Any]] = {
    **{name: {"semantics": name} for name in SEMANTICS},
    "tokens": {"accounting": "simplified"},
}


@pytest.mark.parametrize("kind", CHOICES)
def test_a_machine_gets_a_store_under_the_contracts_it_declares(kind: str) -> None:
    cache = CacheSettings(block_size_tokens=4, kv_bytes_per_token=1, num_layers=1, **CHOICES[kind])
    maker = StoreMaker(cache, trace_of([["a", "b"]]))
    made = maker.make([TierSettings("gpu", 8)], [False])
    assert (made.tree is not None) == (DECLARED[type(made.gpu)] is MarkingStore)
    for name, member in promised(DECLARED[type(made.gpu)]).items():
        assert hasattr(made.gpu, name), name
        assert not isinstance(member, property) or isinstance(getattr(made.gpu, name), int), name
    assert (made.prefixes is not None) == isinstance(made.gpu, _core.TokenStore)
