"""One prompt at a time: windows, the length rule, keys of rows, and what is refused."""

import itertools
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base import rng
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng import RandomGenerator
from kvcache_sim.workload.tokens import PromptConfig, PromptGenerator, Tokenizer


@pytest.fixture(autouse=True)
def _root():
    rng.reset()
    rng.init(42)
    yield
    rng.reset()


def make(**settings) -> PromptGenerator:
    return PromptGenerator(PromptConfig(**{"corpus": 50, "block_size": 4, **settings}), Tokenizer())


def tokens(generator: PromptGenerator, *args, **kwargs) -> list[int]:
    return generator.generate_tokens(*args, **kwargs).tolist()


def test_a_block_is_a_window_that_wraps_once():
    """The corpus 0…49, blocks of 4, AIPerf's empty scope, base seed 42: starts 33, 13, 49 (golden vectors)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rng, "derive", lambda name: RandomGenerator(42))
        generator = make(trace_id="")
    assert tokens(generator, 12, hash_ids=[0, 1, -1]) == [33, 34, 35, 36, 13, 14, 15, 16, 49, 0, 1, 2]
    assert generator.generate(4, hash_ids=[-1]) == "49 0 1 2"


def test_the_separator_comes_first_and_the_length_stays():
    plain, marked = make(), make(separator=7)
    for length, ids in ((8, [1, 2]), (5, [1, 3]), (1, [4])):
        block = tokens(marked, length, hash_ids=ids)
        assert len(block) == length
        assert block[::4] == [7] * len(ids)
        assert block[1:4] == tokens(plain, length, hash_ids=ids)[: len(block[1:4])]


def test_real_token_ids_stand_in_for_counted_ones():
    real = [900 + 3 * k for k in range(50)]
    counted, listed = make(), make(corpus=real)
    assert [real[k] for k in tokens(counted, 30, hash_ids=[1, 2])] == tokens(listed, 30, hash_ids=[1, 2])


def test_blocks_are_kept_as_offsets_not_as_tokens():
    generator = make(corpus=10**6, block_size=512)
    generator.generate_tokens(1000, hash_ids=[5, 6])
    assert len(pickle.dumps(generator)) < 20_000


@given(st.lists(st.integers(-5, 40), unique=True, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_prompts_do_not_depend_on_the_order_of_ids(ids, shuffler):
    one, two = make(), make()
    shuffled = list(ids)
    shuffler.shuffle(shuffled)
    here = {k: tokens(one, 4, hash_ids=[k]) for k in ids}
    assert {k: tokens(two, 4, hash_ids=[k]) for k in shuffled} == here


def test_what_lies_beyond_the_ids_belongs_to_session_and_turn():
    generator, other = make(), make()
    first = tokens(generator, 10, hash_ids=[1], row_key=("chat", 0))
    generator.generate_tokens(33)
    assert tokens(generator, 10, hash_ids=[1], row_key=("chat", 0)) == first
    assert tokens(other, 10, hash_ids=[1], row_key=("chat", 0)) == first
    tails = {tuple(tokens(other, 10, hash_ids=[1], row_key=(s, t))[4:]) for s in "abcd" for t in range(4)}
    assert len(tails) > 8


def test_without_a_key_the_row_number_is_the_key():
    one, two = make(corpus=10**6), make(corpus=10**6)
    rows = [tokens(one, 10) for _ in range(5)]
    assert len({tuple(row) for row in rows}) == 5
    assert [tokens(two, 10, row_key=row) for row in (4, 3, 2, 1, 0)] == rows[::-1]


def test_a_row_set_from_outside_keys_every_call_of_that_row():
    one, two = make(corpus=10**6), make(corpus=10**6)
    one.at_row(3)
    both = [tokens(one, 10), tokens(one, 10)]
    two.at_row(7)
    two.generate_tokens(10)
    two.at_row(3)
    assert [tokens(two, 10), tokens(two, 10)] == both
    assert both[0] == tokens(make(corpus=10**6), 10, row_key=3) != both[1]


def test_a_drawn_length_follows_its_row_or_its_ids():
    generator = make(corpus=10**6, block_size=100)
    lengths = [len(tokens(generator, 1000, 100, row_key=row)) for row in range(200)]
    assert lengths == [len(tokens(make(corpus=10**6), 1000, 100, row_key=row)) for row in range(200)]
    assert 980 < sum(lengths) / 200 < 1020
    assert 80 < (sum((n - 1000) ** 2 for n in lengths) / 200) ** 0.5 < 120
    covered = [len(tokens(make(corpus=10**6, block_size=100), 250, 100, [1, 2, k])) for k in range(10, 60)]
    assert {200 < n <= 300 for n in covered} == {True}
    assert len(set(covered)) > 20


@pytest.mark.parametrize("length", [0, -1, 0.2, float("nan"), float("inf")])
def test_a_prompt_needs_a_positive_length(length):
    with pytest.raises(UsageError):
        make().generate_tokens(length)


def test_too_many_ids_are_refused():
    assert len(tokens(make(), 9, hash_ids=[1, 2, 3])) == 9
    with pytest.raises(UsageError, match="too many hash ids for 8 tokens"):
        make().generate_tokens(8, hash_ids=[1, 2, 3])


def test_an_id_asked_at_two_sizes_is_refused():
    generator = make()
    generator.generate_tokens(6, hash_ids=[1, 2])
    with pytest.raises(UsageError, match="hash id 2 asked at two sizes; got 4 tokens; expected 2 tokens"):
        generator.generate_tokens(8, hash_ids=[1, 2])
    generator.generate_tokens(6, hash_ids=[1, 2])
    with pytest.raises(UsageError, match="two sizes"):
        make().generate_tokens(6, hash_ids=[9, 9])


def test_ids_that_a_dict_would_confuse_are_refused():
    generator = make()
    generator.generate_tokens(4, hash_ids=[1])
    for confused in (True, 1.0):
        with pytest.raises(TypeError, match="not a hash id"):
            generator.generate_tokens(4, hash_ids=[confused])
    assert tokens(generator, 4, hash_ids=["1"]) == tokens(generator, 4, hash_ids=[1])


def test_a_window_longer_than_the_corpus_is_refused():
    with pytest.raises(UsageError, match="longer than the corpus"):
        make(corpus=3).generate_tokens(4, hash_ids=[1])
    with pytest.raises(UsageError, match="longer than the corpus"):
        make(corpus=30).generate_tokens(31)


@pytest.mark.parametrize("key", ["chat", True, ("chat",), 1.5])
def test_what_is_no_row_key_is_refused(key):
    with pytest.raises(UsageError, match="row key"):
        make().generate_tokens(5, row_key=key)


def test_without_a_seed_copies_agree_and_generators_do_not():
    rng.reset()
    rng.init(None)
    one, two = make(corpus=10**9), make(corpus=10**9)
    copy = pickle.loads(pickle.dumps(one))
    assert tokens(one, 6, hash_ids=[1], row_key=0) == tokens(copy, 6, hash_ids=[1], row_key=0)
    assert tokens(one, 4, hash_ids=[1]) != tokens(two, 4, hash_ids=[1])


@pytest.mark.parametrize(
    "settings",
    [
        {"corpus": 0},
        {"corpus": []},
        {"corpus": [-1]},
        {"corpus": "words"},
        {"corpus": 2**32},
        {"block_size": 0},
        {"block_size": 2.0},
        {"block_size": True},
        {"separator": -1},
        {"content": "unique"},
    ],
)
def test_settings_that_cannot_be_are_refused(settings):
    with pytest.raises(UsageError):
        PromptConfig(**settings)


def test_collision_free_blocks_begin_with_their_id():
    generator = make(corpus=1000, block_size=16, separator=5, content="collision-free")
    parity = make(corpus=1000, block_size=16, separator=5)
    block = tokens(generator, 16, hash_ids=[7])
    assert block[:3] == [5, 21, 999]  # separator, 3 × 7 in base 999, the mark
    assert block[3:] == tokens(parity, 16, hash_ids=[7])[3:]


@given(st.lists(st.one_of(st.integers(-(10**30), 10**30), st.text(max_size=5)), max_size=30))
def test_no_code_of_an_id_begins_another(ids):
    from kvcache_sim.workload.tokens.collisions import IdCode
    from kvcache_sim.workload.tokens.corpus import Corpus

    for corpus in (Corpus(3), Corpus(1000), PromptConfig([5, 5, 9, 2, 7]).source):
        # and the numbers that a text's bytes are, which other ids may have
        near = [int.from_bytes(b"\1" + one.encode()) for one in ids if isinstance(one, str)]
        near = [sign * number - down for number in near for sign in (1, -1) for down in (0, 1)]
        names = {rng.hash_id_text(hash_id) for hash_id in [*ids, *near]}
        codes = sorted(tuple(IdCode(corpus).tokens(name).tolist()) for name in names)
        assert all(after[: len(before)] != before for before, after in itertools.pairwise(codes))
