"""Every published golden vector of seed 002, and the digest of the conversation trace's starts.

``none_mode.base_seed_0_is_falsy`` and ``odd_ids`` of the golden file describe quirks of the other tool and
are no targets.
"""

import json
from typing import Any

import pytest
from kvcache_sim.base import rng
from kvcache_sim.base.rng import HashIdRandomGenerator, RandomGenerator
from kvcache_sim.workload.tokens import PromptConfig, PromptGenerator, Tokenizer
from support.shared_files import shared


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(shared("golden/hash_id_golden.json").read_text())
    return loaded


def check_python(generator: RandomGenerator, vector: dict[str, Any]) -> None:
    assert [generator.random() for _ in range(4)] == vector["random"]
    assert [generator.getrandbits(32) for _ in range(4)] == vector["getrandbits32"]
    assert [generator.randrange(10**6) for _ in range(4)] == vector["randrange_1e6"]
    assert [generator.randrange(1393287) for _ in range(4)] == vector["randrange_corpus_1393287"]
    assert [generator.gauss(0, 1) for _ in range(2)] == vector["gauss_0_1"]


def check_numpy(generator: RandomGenerator, vector: dict[str, Any]) -> None:
    assert generator.random_batch(4).tolist() == vector["random"]
    assert generator.integers(0, 10**6, 4).tolist() == vector["integers_0_1e6"]
    assert generator.normal(0, 1, 2).tolist() == vector["normal_0_1"]


def test_derived_generators(golden):
    assert len(golden["derive"]) == 12
    for vector in golden["derive"]:
        rng.reset()
        rng.init(int(vector["root_seed"]))
        generator = rng.derive(vector["identifier"])
        assert str(generator.seed) == vector["child_seed"]
        check_python(generator, vector["python"])
        check_numpy(generator, vector["numpy"])
    rng.reset()


def test_generators_of_hash_ids(golden):
    documents = 0
    for vector in golden["hash_id"]:
        base, hash_id = int(vector["child_seed"]), int(vector["hash_id"])
        assert str(rng.hash_id_seed(base, hash_id, vector["trace_id"])) == vector["derived_seed"]
        generator = HashIdRandomGenerator(base, vector["trace_id"])
        generator.reseed_for_hash_id(hash_id)
        check_python(generator, vector["python"])
        if vector["trace_id"] == rng.DOCUMENT_SCOPE:
            documents += 1
            generator = HashIdRandomGenerator(base)
            generator.reseed_for_hash_id(hash_id)
            assert str(generator.seed) == vector["derived_seed"]
            check_python(generator, vector["python"])
            check_numpy(generator, vector["numpy"])
    assert (len(golden["hash_id"]), documents) == (108, 36)


def test_token_synthesis(golden, monkeypatch):
    for case in golden["token_synthesis"]["cases"]:
        monkeypatch.setattr(rng, "derive", lambda name, base=int(case["base_seed"]): RandomGenerator(base))
        size = int(case["corpus"].removeprefix("range(").removesuffix(")"))
        config = PromptConfig(size, case["block_size"], case["trace_id"], case["sep_token"])
        generator = PromptGenerator(config, Tokenizer())
        ids = [int(block["hash_id"]) for block in case["blocks"]]
        expected = [token for block in case["blocks"] for token in block["tokens"]]
        assert generator.generate_tokens(len(expected), hash_ids=ids).tolist() == expected
