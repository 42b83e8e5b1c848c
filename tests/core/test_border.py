"""Whatever Python gives the core, it answers, or refuses with an error that says what was wrong.

Hypothesis calls keys, digests, token functions, batches, fleets and the stores of engines with anything that
has the right type; a panic of the core would be no `Exception`, and fails the test.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from key_arrays import arrays
from kvcache_sim import _core
from kvcache_sim.base.errors import StoreError
from kvcache_sim.cache.store import GpuStore, LoadingStore
from store_arguments import NUMBERS, arguments
from support.examples import examples

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


@dataclass
class TokenRows:
    """The columns of rows whose tokens are written."""

    lengths: np.ndarray
    id_offsets: np.ndarray
    block_ids: np.ndarray
    starts: np.ndarray
    tail_starts: np.ndarray
    block_size: int
    separator: int | None


ROWS = st.builds(
    TokenRows,
    *(columns(dtype) for dtype in (np.int64, np.int64, np.uint32, np.uint32, np.uint32)),
    st.integers(0, 5),
    st.none() | st.integers(0, 9),
)


@SESSION
@given(ROWS, st.integers(0, 9), st.integers(0, 7), st.integers(0, 7), st.integers(0, 40))
def test_token_rows(rows, corpus, first, last, capacity):
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


@pytest.mark.parametrize("store", ENGINE_STORES)
@SESSION
@given(data=st.data())
def test_the_stores_of_engines(store: str, data: Any) -> None:
    made = ENGINE_STORES[store]()
    leases: list[int] = []
    for _ in range(data.draw(st.integers(1, 30))):
        name = data.draw(st.sampled_from(CALLS if store == "vllm" else LOADING_CALLS))
        try:
            answer = getattr(made, name)(*arguments(LoadingStore, name, lambda: data.draw(NUMBERS), leases))
        except StoreError:
            continue
        finally:
            made.check()
        if name == "acquire":
            leases.append(answer)


@pytest.mark.parametrize(
    ("rules", "page", "lengths"),
    [
        *((("lru", write), 0, (PROMPTS, WHOLES)) for write in ("", "write_back")),
        *((("lru", write), 4, (PROMPTS[:2], WHOLES)) for write in ("", "write_back")),
        *((("lru", write), 4, (PROMPTS, [15, 17, 24])) for write in ("", "write_back")),
        *((("lru", write), 4, (PROMPTS, [18, 17, 1 << 62])) for write in ("", "write_back")),
        (("priority", ""), 4, (PROMPTS, WHOLES)),
        (("tlru", ""), 4, (PROMPTS, WHOLES)),
        (("best", "write_back"), 4, (PROMPTS, WHOLES)),
        (("lru", "write_soon"), 4, (PROMPTS, WHOLES)),
    ],
)
def test_what_no_engines_store_can_be_made_of(rules, page, lengths) -> None:
    assert radix("", 4, (PROMPTS, WHOLES)).occupancy(0).capacity_blocks == 10
    with pytest.raises(StoreError) as refused:
        _core.RadixStore(_core.Keys(*arrays()), rules, page, (10, 6), lengths)
    in_one_line(refused.value)


def test_a_fleet_of_other_lengths_is_refused() -> None:
    store = ENGINE_STORES["vllm"]()
    with pytest.raises(StoreError, match="not a replica a store"):
        _core.Fleet([store], [])
