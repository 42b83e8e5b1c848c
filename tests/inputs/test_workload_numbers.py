"""Numbers of generated workloads: their defaults, their bounds, and the names of new blocks."""

from dataclasses import fields, replace

import numpy as np
import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.workload.generate import KINDS
from kvcache_sim.workload.missing_ids import fill_missing_ids
from support.small_traces import trace_of


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_have_the_defaults_that_they_had(kind, snapshot):
    """Draws of each kind by default; times in ns."""
    assert "\n".join(f"{field.name} = {field.default}" for field in fields(KINDS[kind])) == snapshot


BOUNDS = """
    rag requests 1 1000000000
    rag block_size 1 1048576
    diverse concurrency 0 2147483647
    diverse tenants 1 1000000
    conversational conversational_probability 0.0 1.0
    conversational system_prompt_tokens 0 2147483647
    agentic subagent_probability 0.0 1.0
    overflow window_tokens 1 2147483647
    overflow kept_head_tokens 0 2147483647
    few-shot pool_size 1 1000000
    repetitive instructions 1 1000000
    repetitive shared_probability 0.0 1.0
    rag documents 1 10000000
    rag documents_per_prompt 1 64
    rag zipf_exponent 0.0 3.0
    """


@pytest.mark.parametrize("row", BOUNDS.strip().splitlines())
def test_numbers_of_a_kind_have_bounds(row):
    kind, name, *bounds = row.split()
    least, most = (float(own) if "." in own else int(own) for own in bounds)
    parse = next(field.metadata["parse"] for field in fields(KINDS[kind]) if field.name == name)
    step = 1 if isinstance(least, int) else 1e-9
    for value in (least, most):
        assert parse("here", value) == value
    for value in (least - step, most + step, True, "1", None):
        with pytest.raises(UsageError):
            parse("here", value)


NAMES = [
    ([5, -3], [6, 7]),
    ([7, 2**70], [2**70 + 1, 2**70 + 2]),
    (["a", "b"], ["private:0", "private:1"]),
    (["private:x", "b"], ["_private:0", "_private:1"]),
    (np.array([9, 4], np.uint64), [10, 11]),
    (np.array([2**64 - 4, 4], np.uint64), [2**64 - 3, 2**64 - 2]),
    (np.array([2**64 - 3, 9], np.uint64), [0, 1]),
    (np.array([2**64 - 1, 2], np.uint64), [0, 1]),
    (np.array([2**64 - 1, 1], np.uint64), [2, 3]),
    (np.array([0, 2**64 - 1], np.uint64), [2, 3]),
]


@pytest.mark.parametrize(("names", "new"), NAMES)
def test_new_ids_have_names_that_no_other_has(names, new):
    """After the largest number; from the least on that leave none twice where these end, and texts of their own."""
    trace = replace(trace_of([["x"], [], ["y"]], 4, [4, 8, 4]), id_names=names)
    filled = fill_missing_ids(trace)
    own = list(names) if isinstance(names, list) else names.tolist()
    assert [filled.id_names[k] for k in filled.block_ids] == [own[0], *new, own[1]]
