"""Adapters, salts and images in a block's key: requests that differ never share, equal ones share as
before."""

import json
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import KvsimError
from kvcache_sim.simulation import simulate
from kvcache_sim.workload.members import with_extra_keys
from kvcache_sim.workload.readers import ReadSettings, read_trace
from support.clusters import cluster
from support.product.traces import build, settings_of, write_jsonl
from support.small_traces import tree_traces
from support.traces import random_trace

IMAGES = st.lists(
    st.fixed_dictionaries({"hash": st.sampled_from("ab"), "offset": st.integers(0, 30)}), max_size=2
)
ROWS = st.fixed_dictionaries({}, optional={"salt": st.sampled_from(["x", "y", None]), "mm": IMAGES})


def row_ids(trace, row):
    return trace.block_ids[trace.id_offsets[row] : trace.id_offsets[row + 1]].tolist()


@given(tree_traces(), st.data())
def test_two_blocks_are_one_exactly_where_ids_and_keys_up_to_them_are(trace, data):
    rows = [data.draw(ROWS) for _ in range(len(trace))]
    rows[0] |= {"salt": "x", "mm": [{"hash": "a", "offset": 0}]}
    texts = [json.dumps(row)[1:-1] for row in rows]
    keyed = with_extra_keys(replace(trace, extra=texts), ["salt", "mm"])
    named = defaultdict(set)
    for row, members in enumerate(rows):
        for index, (before, after) in enumerate(zip(row_ids(trace, row), row_ids(keyed, row), strict=True)):
            end = (index + 1) * trace.block_size
            images = [image["hash"] for image in members.get("mm", []) if image["offset"] < end]
            named[before, members.get("salt"), tuple(images)].add(after)
    numbers = [number for found in named.values() for number in found]
    # Images of one block in another order give another key; of later images only the tokens so far count.
    assert all(len(found) == 1 for found in named.values())
    assert len(set(numbers)) == len(numbers)
    order = list(dict.fromkeys(keyed.block_ids.tolist()))
    assert order == sorted(order)


def test_equal_salts_change_nothing_and_others_never_share():
    trace = random_trace(3)
    equal = with_extra_keys(replace(trace, extra=['"cache_salt": "one"'] * len(trace)), ["cache_salt"])
    assert equal.block_ids is trace.block_ids
    own = [f'"cache_salt": "{row}"' for row in range(len(trace))]
    apart = with_extra_keys(replace(trace, extra=own), ["cache_salt"])
    for semantics in ("tree", "vllm", "sglang"):
        settings = cluster((400,))
        settings = replace(settings, cache=replace(settings.cache, semantics=semantics))
        runs = [simulate(settings, each) for each in (trace, equal, apart)]
        assert runs[0].digest_results == runs[1].digest_results
        assert runs[0].requests["cached_prefix_length_used"].sum() > 0
        assert runs[2].requests["cached_prefix_length_used"].sum() == 0


def test_members_come_from_the_rows_of_a_file(tmp_path):
    path = tmp_path / "t.jsonl"
    row = {"timestamp": 0, "input_length": 1536, "output_length": 5, "hash_ids": [1, 2, 3]}
    image = {"mm_hashes": [{"hash": "f0", "offset": 600}]}
    rows = [row, row | {"lora": "a"}, row | {"lora": "a"}, row | image, row | {"lora": None}]
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    plain = read_trace(path)
    keyed = read_trace(path, settings=ReadSettings(extra_keys=("lora", "mm_hashes")))
    assert plain.distinct_ids == 3
    assert row_ids(keyed, 1) == row_ids(keyed, 2) == [3, 4, 5]
    # the block that the image begins in is another one, and all behind it
    assert row_ids(keyed, 3) == [0, 6, 7]
    assert row_ids(keyed, 4) == row_ids(keyed, 0) == [0, 1, 2]
    assert not keyed.extra


@pytest.mark.parametrize(
    ("rows", "members", "words"),
    [
        ([{"lora": "a"}, {}], ["salt"], "no row has the member 'salt'"),
        ([{"lora": {"a": 1}}, {}], ["lora"], "lora of request 0 is no key"),
        ([{"mm": [{"offset": -1}]}, {}], ["mm"], "mm of request 0 is no key"),
    ],
)
def test_what_is_no_key_is_one_line(rows, members, words):
    trace = random_trace(1, requests=2)
    with pytest.raises(KvsimError) as refused:
        with_extra_keys(replace(trace, extra=[json.dumps(row)[1:-1] for row in rows]), members)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_tenants_of_a_generated_workload_share_nothing(tmp_path):
    given = {"requests": 200, "block_size": 64}
    one = build("few-shot", given, 1)
    several = build("few-shot", {**given, "tenants": 5}, 1)
    assert (one.input_tokens == several.input_tokens).all()
    assert several.distinct_ids > one.distinct_ids
    # blocks that all shared now come once a tenant at most
    shared = np.bincount(one.block_ids).max()
    assert np.bincount(several.block_ids).max() < shared
    path = tmp_path / "w.jsonl"
    with path.open("w") as out:
        write_jsonl(settings_of("few-shot", {**given, "tenants": 5}), 1, out)
    written = read_trace(path, settings=ReadSettings(block_size=64))
    assert (written.block_ids == several.block_ids).all()
