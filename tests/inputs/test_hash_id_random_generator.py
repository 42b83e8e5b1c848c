"""Seed 002's own test list, item by item, and what it lacks: pinned values, real processes, independence.

The pinned integers were computed with AIPerf 0.13 and with the document's formula (golden vectors).
"""

import hashlib
import multiprocessing
import os
import pickle
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base import rng
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng import HashIdRandomGenerator, RandomGenerator

CORPUS = 1_000_000
BASE_42 = 10558974911300946294  # rng.init(42); rng.derive("dataset.prompt.corpus").seed


@pytest.fixture(autouse=True)
def _fresh_root():
    rng.reset()
    yield
    rng.reset()


@pytest.fixture
def hash_rng() -> HashIdRandomGenerator:
    rng.init(42)
    return HashIdRandomGenerator.from_base_rng(rng.derive("dataset.prompt.corpus"))


def tokens_of(generator: RandomGenerator, count: int = 8) -> list[int]:
    return [generator.randrange(CORPUS) for _ in range(count)]


def tokens_for(generator: HashIdRandomGenerator, hash_id: int | str) -> list[int]:
    generator.reseed_for_hash_id(hash_id)
    return tokens_of(generator)


# the seed's list ------------------------------------------------------------------------------------------


def test_deterministic_seeding_per_hash_id(hash_rng):
    first = tokens_for(hash_rng, 123)
    hash_rng.random()
    assert tokens_for(hash_rng, 123) == first
    assert tokens_for(hash_rng, 124) != first


def test_independence_across_workers():
    rng.init(42)
    workers = [HashIdRandomGenerator.from_base_rng(rng.derive("worker.corpus")) for _ in range(3)]
    workers[1].random()
    assert tokens_for(workers[0], 456) == tokens_for(workers[1], 456) == tokens_for(workers[2], 456)
    other = HashIdRandomGenerator.from_base_rng(rng.derive("another.corpus"))
    assert tokens_for(other, 456) != tokens_for(workers[0], 456)


@given(st.permutations([100, 200, 300, -7, 0]))
def test_order_independence(order):
    generator = HashIdRandomGenerator(BASE_42)
    sorted_first = {hash_id: tokens_for(generator, hash_id) for hash_id in sorted(order)}
    assert {hash_id: tokens_for(generator, hash_id) for hash_id in order} == sorted_first


def test_parallel_cache_simulation():
    rng.init(42)
    caches = []
    for ids in ([1, 2, 3], [3, 4, 5]):
        generator = HashIdRandomGenerator.from_base_rng(rng.derive("worker.corpus"))
        caches.append({hash_id: tokens_for(generator, hash_id) for hash_id in ids})
    assert caches[0][3] == caches[1][3]
    contents = [tuple(tokens) for cache in caches for tokens in cache.values()]
    assert len(set(contents)) == 5


def test_non_deterministic_mode_is_stable_inside_one_generator():
    rng.init(None)
    base = rng.derive("dataset.prompt.corpus")
    assert base.seed is None
    one, two = HashIdRandomGenerator.from_base_rng(base), HashIdRandomGenerator.from_base_rng(base)
    assert tokens_for(one, 5) == tokens_for(one, 5)
    assert one.base_seed != two.base_seed
    assert tokens_for(one, 5) != tokens_for(two, 5)


def test_non_deterministic_mode_hands_its_base_to_workers():
    rng.init(None)
    one = HashIdRandomGenerator.from_base_rng(rng.derive("dataset.prompt.corpus"))
    by_seed = HashIdRandomGenerator(one.base_seed)
    by_copy = pickle.loads(pickle.dumps(one))
    assert tokens_for(by_seed, 5) == tokens_for(by_copy, 5) == tokens_for(one, 5)


def every_operation(g: RandomGenerator) -> list[object]:
    characters = list("abcdefgh")
    shuffled = list(characters)
    g.shuffle(shuffled)
    drawn: list[object] = [
        g.random(),
        g.uniform(2, 3),
        g.choice(characters),
        g.choices(characters, 3),
        g.sample(characters, 3),
        g.randrange(10),
        g.randrange(5, 50, 5),
        g.randint(1, 6),
        g.getrandbits(40),
        g.gauss(0, 1),
        g.expovariate(2.0),
        g.gammavariate(2.0, 0.5),
        int(g.integers(10)),
        g.integers(3, 9, 4).tolist(),
        float(g.normal()),
        g.normal(1, 2, 2).tolist(),
        g.numpy_choice(characters, 2, replace=False).tolist(),
        g.numpy_choice(3, p=[0, 0, 1]),
        shuffled,
        g.random_batch(3).tolist(),
    ]
    return drawn


def test_multiple_random_operations(hash_rng):
    hash_rng.reseed_for_hash_id(9)
    first = every_operation(hash_rng)
    hash_rng.reseed_for_hash_id(8)
    assert every_operation(hash_rng) != first
    hash_rng.reseed_for_hash_id(9)
    assert every_operation(hash_rng) == first


def test_inheritance_of_all_random_generator_methods(hash_rng):
    assert isinstance(hash_rng, RandomGenerator)
    hash_rng.reseed_for_hash_id(77)
    assert every_operation(hash_rng) == every_operation(RandomGenerator(hash_rng.seed))
    # and each is the very generator it is named after
    python, numpy = random.Random(5), np.random.default_rng(5)
    ours = RandomGenerator(5)
    assert [ours.random(), ours.uniform(1, 2), ours.randint(1, 9)] == [
        python.random(),
        python.uniform(1, 2),
        python.randint(1, 9),
    ]
    assert ours.random_batch(3).tolist() == numpy.random(3).tolist()
    assert ours.integers(0, 10**6) == numpy.integers(0, 10**6)


def test_hash_collision_independence():
    """Close ids, and the same id under other bases and scopes, are unrelated."""
    seeds = {
        rng.hash_id_seed(base, hash_id, scope)
        for base in range(5)
        for scope in ("hash_id", "", "b8cbb061a85206d7")
        for hash_id in range(2000)
    }
    assert len(seeds) == 5 * 3 * 2000


@pytest.mark.parametrize("hash_id", [0, -1, 1, 2**31, 2**63 - 1, 2**63, 2**64, 10**30, -(10**30)])
def test_edge_cases(hash_rng, hash_id):
    assert tokens_for(hash_rng, hash_id) == tokens_for(hash_rng, hash_id)
    assert 0 <= hash_rng.seed < 2**64


# what it lacks --------------------------------------------------------------------------------------------


def test_pinned_seeds_of_the_document():
    rng.init(42)
    base = rng.derive("dataset.prompt.corpus")
    assert base.seed == BASE_42
    text = f"{BASE_42}:hash_id:123"
    expected = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    generator = HashIdRandomGenerator.from_base_rng(base)
    generator.reseed_for_hash_id(123)
    assert generator.seed == expected == rng.hash_id_seed(BASE_42, 123)
    assert generator.base_seed == BASE_42


@pytest.mark.parametrize(
    ("base", "trace_id", "corpus", "starts"),
    [
        (42, "", 50, {0: 33, 1: 13, -1: 49, 7: 9, 2**63 - 1: 33}),
        (42, "t", 50, {7: 22, 1: 34, 3: 23}),
        (0, "", 10, {0: 5, 1: 9, 2: 1, 3: 5}),
    ],
)
def test_pinned_starts_of_aiperf(base, trace_id, corpus, starts):
    """The first draw after a re-seed; base seed 0 is a seed like any other."""
    generator = HashIdRandomGenerator.from_base_rng(RandomGenerator(base), trace_id)
    drawn = {}
    for hash_id in starts:
        generator.reseed_for_hash_id(hash_id)
        drawn[hash_id] = generator.randrange(corpus)
    assert drawn == starts


def test_document_mode_reseeds_numpy_and_shows_the_derived_seed():
    generator = HashIdRandomGenerator(42)
    generator.normal()
    generator.reseed_for_hash_id(3)
    derived = rng.hash_id_seed(42, 3)
    assert generator.seed == derived
    assert generator.normal() == np.random.default_rng(derived).normal()


def test_aiperf_mode_forbids_numpy_after_a_reseed():
    generator = HashIdRandomGenerator(42, trace_id="")
    generator.normal()
    generator.reseed_for_hash_id(3)
    assert generator.seed == 42
    for draw in (generator.normal, lambda: generator.integers(3), lambda: generator.random_batch(2)):
        with pytest.raises(RuntimeError, match="numpy"):
            draw()
    assert 0 <= generator.random() < 1


@given(st.integers(-(10**30), 10**30))
def test_any_integer_is_an_id(hash_id):
    text = f"{BASE_42}:hash_id:{hash_id}"
    expected = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    assert rng.hash_id_seed(BASE_42, hash_id) == expected
    assert rng.hash_id_seed(BASE_42, str(hash_id)) == expected
    generator = HashIdRandomGenerator(BASE_42)
    generator.reseed_for_hash_id(hash_id)
    assert generator.randrange(CORPUS) == random.Random(expected).randrange(CORPUS)


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_numpy_integer_is_its_value(hash_id):
    assert rng.hash_id_seed(1, np.int64(hash_id)) == rng.hash_id_seed(1, hash_id)


@pytest.mark.parametrize(
    "wrong", [True, False, 1.0, float("nan"), None, b"1", (1,), np.float64(1), np.bool_(True)]
)
def test_what_is_no_id_is_refused(hash_rng, wrong):
    with pytest.raises(TypeError, match="not a hash id"):
        hash_rng.reseed_for_hash_id(wrong)


def test_strings_are_their_own_text(hash_rng):
    assert tokens_for(hash_rng, "1") == tokens_for(hash_rng, 1)
    assert tokens_for(hash_rng, "01") != tokens_for(hash_rng, 1)
    assert tokens_for(hash_rng, "blob\n✓") == tokens_for(hash_rng, "blob\n✓")


def test_the_root_seed_is_set_once():
    with pytest.raises(RuntimeError, match="no root seed"):
        rng.derive("a")
    rng.init(0)
    assert rng.derive("dataset.prompt.corpus").seed == 5252555442704823983
    rng.init(0)
    for other in (1, None):
        with pytest.raises(RuntimeError, match="set already"):
            rng.init(other)
    for wrong in (True, 1.0, "42", -1):
        with pytest.raises(UsageError):
            rng.init(wrong)


def test_derivation_does_not_depend_on_the_order_of_calls():
    rng.init(3)
    one, two = rng.derive("a").random(), rng.derive("b").random()
    assert (rng.derive("b").random(), rng.derive("a").random()) == (two, one)


def test_base_seed_is_read_without_drawing():
    base = RandomGenerator(11)
    HashIdRandomGenerator.from_base_rng(base)
    assert base.random() == RandomGenerator(11).random()


# real processes -------------------------------------------------------------------------------------------


def _worker(seed: int, ids: list[int]) -> tuple[int, dict[int, list[int]]]:
    rng.init(seed)
    generator = HashIdRandomGenerator.from_base_rng(rng.derive("worker.corpus"))
    return os.getpid(), {hash_id: tokens_for(generator, hash_id) for hash_id in ids}


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_real_processes_agree(method):
    overlapping = [[1, 2, 3], [3, 2, 4], [5, 3, 1]]
    rng.init(42)
    _, here = _worker(42, [1, 2, 3, 4, 5])
    if method == "spawn":
        rng.reset()  # a spawned worker starts without one anyway
    with multiprocessing.get_context(method).Pool(3) as pool:
        answers = pool.starmap(_worker, [(42, ids) for ids in overlapping], chunksize=1)
        # Workers that end on request cannot be killed while one of them holds the lock of the queue.
        pool.close()
        pool.join()
    for (_, cache), ids in zip(answers, overlapping, strict=True):
        assert cache == {hash_id: here[hash_id] for hash_id in ids}
    assert os.getpid() not in {pid for pid, _ in answers}
