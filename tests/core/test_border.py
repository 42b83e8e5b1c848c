"""Whatever Python gives the core, it answers, or refuses with an error that says what was wrong.

Hypothesis calls keys, digests, token functions, batches, fleets and the stores of engines with anything that
has the right type; a panic of the core would be no `Exception`, and fails the test.
"""

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from key_arrays import arrays
from kvcache_sim import _core
from kvcache_sim.base.errors import StoreError
from kvcache_sim.cache.store import GpuStore, LoadingStore
from support.examples import examples

SMALL = st.integers(-2, 9)
NUMBERS = SMALL | st.sampled_from([1 << 31, (1 << 32) - 1, 1 << 32, 1 << 63, (1 << 64) - 1, 1 << 64])
SESSION = examples(150, suppress_health_check=list(HealthCheck))
PROMPTS, WHOLES = [16, 16, 24], [18, 17, 24]
ENGINE_STORES: dict[str, Callable[[], Any]] = {
    "vllm": lambda: _core.PoolStore(_core.Keys(*arrays()), 8),
    "sglang": lambda: radix("", 4, (PROMPTS, WHOLES)),
    "hicache": lambda: radix("write_through", 4, (PROMPTS, WHOLES)),
}


def radix(write: str, page: int, lengths: tuple[list[int], list[int]]) -> Any:
    """Return a store of SGLang's tree; a write policy of "": the classic one."""
    return _core.RadixStore(_core.Keys(*arrays()), ("lru", write), page, (10, 6), lengths)


def in_one_line(refused: Exception) -> None:
    assert len(str(refused).splitlines()) == 1


def columns(of: type[np.generic]) -> st.SearchStrategy[Any]:
    return st.lists(st.integers(0, 9), max_size=6).map(lambda xs: np.array(xs, of))


@SESSION
@given(
    columns(np.int64), columns(np.uint32), NUMBERS, columns(np.uint32), columns(np.uint32), NUMBERS, NUMBERS
)
def test_keys(offsets, ids, per, full, following, request, block):
    try:
        keys = _core.Keys(offsets, ids, per, full, following)
        assert keys.key(request, block) >= 0
    except StoreError as refused:
        in_one_line(refused)


@SESSION
@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_digests(kind, time_ns, subject, value):
    digest = _core.Digest()
    try:
        digest.record(kind, time_ns, subject, value)
    except StoreError:
        assert min(kind, time_ns, subject, value) < 0 or max(kind, time_ns, subject, value) >= 1 << 64


@SESSION
@given(columns(np.int64), columns(np.int64), columns(np.uint32), columns(np.uint32), columns(np.uint32),
       st.integers(0, 5), st.none() | st.integers(0, 9), st.integers(0, 9), st.integers(0, 7), st.integers(0, 7),
       st.integers(0, 40))  # fmt: skip
def test_token_rows(lengths, offsets, ids, starts, tails, size, separator, corpus, first, last, capacity):
    rows = SimpleNamespace(
        lengths=lengths, id_offsets=offsets, block_ids=ids, starts=starts, tail_starts=tails,
        block_size=size, separator=separator,
    )  # fmt: skip
    try:
        _core.write_token_rows(rows, corpus, first, last, np.zeros(capacity, np.uint32))
    except ValueError as refused:
        in_one_line(refused)


@SESSION
@given(columns(np.int64), st.lists(st.text(max_size=3), max_size=3), st.text(max_size=3), st.integers(0, 9))
def test_seeds_of_tokens(ids, names, prefix, stop):
    seeds = _core.seeds_of_ids(prefix, ids)
    assert len(seeds) == len(ids)
    assert len(_core.seeds_of_names(prefix, names)) == len(names)
    if stop:
        assert all(drawn < stop for drawn in _core.first_randrange(seeds, stop))


UNASKED = ("note", "log_evictions", "take_evictions")
CALLS, LOADING_CALLS = (
    [
        name
        for name, _ in inspect.getmembers(contract, inspect.isfunction)
        if name[0] != "_" and name not in UNASKED
    ]
    for contract in (GpuStore, LoadingStore)
)


def given_to(name: str, draw: Callable[[], int], leases: list[int]) -> list[object]:
    """Draw what a call of a store takes, by the names of its parameters."""
    made: list[object] = []
    for parameter in list(inspect.signature(getattr(LoadingStore, name)).parameters)[1:]:
        one = draw()
        lease = leases[one % len(leases)] if leases and one >= 0 else one
        if parameter == "lease":
            made.append(lease)
        elif parameter == "wanted":
            made.append([(lease, draw())] + ([(leases[0], draw())] if leases and one % 2 else []))
        elif parameter == "after":
            made.append([one])
        elif parameter == "ready":
            made.append(None if one == 0 else (one, draw()))
        else:
            made.append(one)
    return made


@pytest.mark.parametrize("store", ENGINE_STORES)
@SESSION
@given(data=st.data())
def test_the_stores_of_engines(store: str, data: Any) -> None:
    made = ENGINE_STORES[store]()
    leases: list[int] = []
    for _ in range(data.draw(st.integers(1, 30))):
        name = data.draw(st.sampled_from(CALLS if store == "vllm" else LOADING_CALLS))
        try:
            answer = getattr(made, name)(*given_to(name, lambda: data.draw(NUMBERS), leases))
        except StoreError:
            continue
        finally:
            made.check()
        if name == "acquire":
            leases.append(answer)


def test_what_no_engines_store_can_be_made_of() -> None:
    assert radix("", 4, (PROMPTS, WHOLES)).occupancy(0).capacity_blocks == 10
    for page, prompts, wholes, said in (
        (0, PROMPTS, WHOLES, "a page of no tokens; expected 1 token or more"),
        (4, PROMPTS[:2], WHOLES, "not the lengths of the requests; expected 3 prompts and wholes"),
        (4, PROMPTS, [15, 17, 24], "not the lengths of the requests"),
        (4, PROMPTS, [18, 17, 1 << 62], "not the lengths of the requests"),
    ):
        for write in ("", "write_back"):
            with pytest.raises(StoreError, match=said):
                radix(write, page, (prompts, wholes))
    keys = _core.Keys(*arrays())
    for rules, said in (
        (("priority", ""), "no such eviction strategy"),
        (("tlru", ""), "no such eviction strategy"),
        (("best", "write_back"), "no such eviction strategy"),
        (("lru", "write_soon"), "no such write policy"),
    ):
        with pytest.raises(StoreError, match=said):
            _core.RadixStore(keys, rules, 4, (10, 6), (PROMPTS, WHOLES))


def test_a_fleet_of_other_lengths_is_refused() -> None:
    store = ENGINE_STORES["vllm"]()
    with pytest.raises(StoreError, match="not a replica a store"):
        _core.Fleet([store], [])
