"""Whole traces: equal to one prompt at a time, on any number of real processes, in any order."""

import multiprocessing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base import rng
from kvcache_sim.base.errors import KvsimError, TraceError, UsageError
from kvcache_sim.workload.readers import read_trace
from kvcache_sim.workload.tokens import PromptConfig, PromptGenerator, Tokenizer, TokenWorkers, block_starts
from kvcache_sim.workload.tokens.row_key import trace_row_key
from kvcache_sim.workload.trace import Trace
from support.product.traces import token_batches
from support.shared_files import shared
from support.token_rows import Row, trace_of

SEED = 42
BASE_SEED = rng.derive_seed(SEED, "dataset.prompt.corpus")
BLOCK_SIZE = 8


def rows_of(batches) -> list[list[int]]:
    rows = []
    for batch in batches:
        assert batch.first_row == len(rows)
        for first, last in zip(batch.offsets[:-1], batch.offsets[1:], strict=True):
            rows.append(batch.tokens[first:last].tolist())
    return rows


def prompts_of(trace: Trace, config: PromptConfig) -> list[list[int]]:
    """The oracle: a prompt generator, row by row, in Python."""
    rng.reset()
    rng.init(SEED)
    generator = PromptGenerator(config, Tokenizer())
    rng.reset()
    names = trace.id_names if len(trace.id_names) else np.arange(trace.distinct_ids)
    prompts = []
    for row in range(len(trace)):
        dense = trace.block_ids[trace.id_offsets[row] : trace.id_offsets[row + 1]]
        ids = [names[k] for k in dense]
        length = int(trace.input_tokens[row])
        prompts.append(
            generator.generate_tokens(length, hash_ids=ids, row_key=trace_row_key(trace, row)).tolist()
        )
    return prompts


@st.composite
def small_traces(draw) -> Trace:
    """Rows that share prefixes; lasts partial or whole, tails, rows without ids, with and without
    sessions."""
    name = draw(
        st.sampled_from([lambda k: k, lambda k: k * 10**17 - 5, lambda k: f"blob{k}", lambda k: k + 10**30])
    )
    rows, fresh = [], 0
    chains: list[list[int]] = [[]]
    for number in range(draw(st.integers(1, 12))):
        prefix = draw(st.sampled_from(chains))
        own = draw(st.integers(0, 3))
        chain = prefix + list(range(fresh, fresh + own))
        fresh += own
        tail = draw(st.integers(0, 20))
        length = len(chain) * BLOCK_SIZE + tail
        if own and tail == 0:
            length -= draw(
                st.integers(0, BLOCK_SIZE - 1)
            )  # a new last block, partial: no request continues it
        else:
            chains.append(chain)
        session = draw(st.sampled_from(["", "a", "b:1"]))
        rows.append(Row(max(1, length), [name(k) for k in chain], session, number))
    return trace_of(rows, BLOCK_SIZE)


CONFIGS = st.sampled_from(
    [
        PromptConfig(1000, BLOCK_SIZE),
        PromptConfig(29, BLOCK_SIZE, trace_id=""),
        PromptConfig(list(range(500, 100, -7)), BLOCK_SIZE, trace_id="b8cbb061a85206d7", separator=3),
        PromptConfig(200_000, BLOCK_SIZE, separator=1, content="collision-free"),
    ]
)


@given(small_traces(), CONFIGS, st.integers(1, 200))
def test_a_trace_equals_its_prompts_one_by_one(trace, config, batch_tokens):
    try:
        here = rows_of(token_batches(trace, config, BASE_SEED, batch_tokens))
    except UsageError:  # collision-free, and blocks too short for it
        assert config.content == "collision-free"
        return
    assert here == prompts_of(trace, config)


MIXED = [
    *(Row(20 + k % 5, [0, 1, 100 + k], f"chat{k % 7}", k // 7) for k in range(60)),
    *(Row(30 + k, [0, 1, 2], "") for k in range(20)),  # tails, without a session
    *(Row(17) for _ in range(20)),  # no ids, no session, equal lengths
    *(Row(17, [], "solo", k) for k in range(10)),
]


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_workers_write_what_one_process_writes(workers):
    trace, config = trace_of(MIXED, BLOCK_SIZE), PromptConfig(1_000_000, BLOCK_SIZE)
    serial = rows_of(token_batches(trace, config, BASE_SEED))
    with TokenWorkers(trace, config, BASE_SEED, workers, "spawn" if workers <= 2 else "fork") as crew:
        assert rows_of(crew.batches()) == serial
        counts = crew.counts
        assert np.array_equal(crew.starts(), block_starts(trace, config, BASE_SEED))
    assert len(counts) == workers
    assert len({count.pid for count in counts}) == workers
    assert sum(count.rows for count in counts) == len(trace)
    assert all(0 < count.ids <= trace.distinct_ids for count in counts)
    # each worker drew for itself the ids its rows name: more than once around, where rows share them
    assert sum(count.ids for count in counts) >= trace.distinct_ids
    assert len({tuple(row) for row in serial}) == len(serial)


def test_shuffled_rows_have_the_same_tokens():
    """Rows with a session keep their tokens wherever they stand; ids keep theirs everywhere."""
    rows = [row for row in MIXED if row.session]
    order = np.random.Generator(np.random.PCG64(1)).permutation(len(rows))
    config = PromptConfig(1000, BLOCK_SIZE)
    plain = rows_of(token_batches(trace_of(rows, BLOCK_SIZE), config, BASE_SEED))
    shuffled = trace_of([rows[k] for k in order], BLOCK_SIZE)
    with TokenWorkers(shuffled, config, BASE_SEED, 2, "fork") as crew:
        assert rows_of(crew.batches()) == [plain[k] for k in order]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([Row(8, [1]), Row(0)], "row 1: a prompt needs a token"),
        ([Row(8, [1, 2])], "row 0: too many hash ids"),
        (
            [Row(8, [1]), Row(5, [1])],
            "row 1: a hash id asked at two sizes; got id 1 with 5 tokens; expected 8",
        ),
        (
            [Row(5, [1]), Row(8, [1])],
            "row 1: a hash id asked at two sizes; got id 1 with 8 tokens; expected 5",
        ),
    ],
)
def test_rows_that_break_the_length_rule_are_refused_by_any_number_of_workers(rows, message):
    trace, config = trace_of(rows, BLOCK_SIZE), PromptConfig(1000, BLOCK_SIZE)
    with pytest.raises(TraceError, match=message):
        next(token_batches(trace, config, BASE_SEED))
    with TokenWorkers(trace, config, BASE_SEED, 2, "fork") as crew, pytest.raises(TraceError, match=message):
        next(crew.batches())


def test_settings_that_do_not_fit_the_trace_are_refused():
    trace = trace_of([Row(30, [1])], BLOCK_SIZE)
    with pytest.raises(UsageError, match="block size"):
        next(token_batches(trace, PromptConfig(1000, 16), BASE_SEED))
    with pytest.raises(UsageError, match="22 tokens; expected at most 21"):
        next(token_batches(trace, PromptConfig(21, BLOCK_SIZE), BASE_SEED))
    close = trace_of([Row(1, [k]) for k in range(2000)], BLOCK_SIZE)
    with pytest.raises(UsageError, match="too short to distinguish ids"):
        next(token_batches(close, PromptConfig(1000, BLOCK_SIZE, content="collision-free"), BASE_SEED))
    next(token_batches(close, PromptConfig(10_000, BLOCK_SIZE, content="collision-free"), BASE_SEED))


def test_an_empty_trace_has_no_batches():
    trace = trace_of([], BLOCK_SIZE)
    assert rows_of(token_batches(trace, PromptConfig(10, BLOCK_SIZE), BASE_SEED)) == []


def fail(item):
    if item == 3:
        raise TraceError("three", where="here")
    return item


def die(item):
    if item == 2:
        import os

        os._exit(9)
    return item


def test_a_pool_raises_a_workers_exception_and_continues():
    from kvcache_sim.workload.tokens.pool import fork

    with fork.Pool(2) as pool:
        assert all(process.daemon for process in multiprocessing.active_children()), (
            "none outlives its parent"
        )
        with pytest.raises(TraceError, match="here: three"):
            pool.map(fail, range(6))
        assert pool.map(fail, [7, 8, 9]) == [7, 8, 9]
        assert len(pool.items_by_pid) == 2


def test_a_worker_that_dies_is_an_error():
    from kvcache_sim.workload.tokens.pool import fork

    with fork.Pool(2) as pool, pytest.raises(KvsimError, match="ended without an answer; got exit code 9"):
        pool.map(die, range(6))


@pytest.mark.parametrize("workers", [0, -1, True, 1.5])
def test_a_pool_needs_a_worker(workers):
    with pytest.raises(UsageError, match="number of workers"):
        TokenWorkers(trace_of([Row(4)], BLOCK_SIZE), PromptConfig(10, BLOCK_SIZE), BASE_SEED, workers)


def test_the_conversation_trace_row_by_row():
    """Every tenth row, token by token, from the starts that the golden digest pins."""
    trace = read_trace(shared("traces/conversation_trace.jsonl"))
    config = PromptConfig(1_000_000, 512, trace.sha256[:16])
    starts = block_starts(trace, config, BASE_SEED).astype(np.int64)
    total = row = 0
    for batch in token_batches(trace, config, BASE_SEED):
        total += len(batch.tokens)
        for first, last in zip(batch.offsets[:-1], batch.offsets[1:], strict=True):
            if row % 10 == 0:
                ids = trace.block_ids[trace.id_offsets[row] : trace.id_offsets[row + 1]]
                positions = np.repeat(starts[ids], 512)[: last - first] + np.arange(last - first) % 512
                assert np.array_equal(batch.tokens[first:last], positions % 1_000_000)
            row += 1
    assert (row, total) == (12_031, 144_793_823)
