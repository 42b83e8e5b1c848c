"""Texts of answers and their stops, tokenizers, and the numbers of blocks of tokens."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng import stream
from kvcache_sim.extras.live.answers import Answers
from kvcache_sim.extras.live.tokenizer import ByteTokenizer, tokenizer_of
from support.examples import examples
from support.product.live import BlockNumbers
from support.word_tokenizer import write_tokenizer


@pytest.mark.parametrize(
    ("words", "text", "least"),
    [(["ab", "a", "b"], "ab ab", 0), (["a", "bb"], "a" * 59, 2), (["a"], "a" * 60, 3)],
)
def test_a_text_has_a_token_for_each_four_times_the_longest_token(tmp_path, words, text, least):
    """The longest token is the one for unknown words, of five characters."""
    write_tokenizer(tmp_path / "tokenizer.json", words)
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        own = tokenizer_of(path)
        assert own.name == str(tmp_path / "tokenizer.json")
        assert own.least_tokens(text) == least
        assert own.encode("a b a") == own.encode("a b a") == [own.encode(word)[0] for word in "aba"]
        assert own.decode(own.encode("a")) == "a"
    with pytest.raises(UsageError, match="no tokenizer there"):
        tokenizer_of(tmp_path / "none")


@pytest.mark.parametrize("lengths", [[5, 1], [60_000, 3, 25_000], [24_000] * 9])
def test_answers_are_parts_of_one_text_without_end(lengths):
    """From where the seed says, round and round; an element, a slice and the length are those of a list."""
    answers, size = Answers(ByteTokenizer(), 11), None
    starts, whole = stream(11, "live/answers"), {}
    for length in lengths:
        drawn = answers.draw(length, [], 0)
        assert (len(drawn.tokens), len(drawn.texts), drawn.finish_reason) == (length, length, "length")
        assert drawn.texts[:] == [chr(token) for token in drawn.tokens[:]]
        picked = [drawn.tokens[at] for at in (0, length // 2, length - 1)]
        assert picked == [drawn.tokens[:][at] for at in (0, length // 2, -1)]
        assert drawn.tokens[-3:length:2] == drawn.tokens[:][-3:length:2]
        for outside in (-1, length):
            with pytest.raises(IndexError):
                drawn.texts[outside]
        if size is None:
            size = round_of(Answers(ByteTokenizer(), 11))
        start = int(starts.integers(0, size))
        for at, token in enumerate(drawn.tokens):
            assert whole.setdefault((start + at) % size, token) == token


def round_of(answers: Answers) -> int:
    """Return after how many tokens the text begins again."""
    text = "".join(answers.draw(100_000, [], 0).texts)
    return text.index(text[:500], 1)


#: Two that draw the same texts.
SAME_TEXTS = Answers(ByteTokenizer(), 0), Answers(ByteTokenizer(), 0)


@examples(60)
@given(
    st.lists(st.text("cehist ", min_size=1, max_size=3), min_size=1, max_size=3),
    st.integers(0, 60),
    st.integers(1, 200),
)
def test_an_answer_ends_before_the_first_stop_that_ends_behind_its_least_tokens(stops, least, tokens):
    texts, found = SAME_TEXTS[0].draw(tokens, [], 0).texts[:], SAME_TEXTS[1].draw(tokens, stops, least)
    whole, free = "".join(texts), len("".join(texts[:least]))
    ends = [end for end in range(free + 1, len(whole) + 1) if whole[:end].endswith(tuple(stops))]
    if not ends:
        assert (found.texts[:], found.finish_reason) == (texts, "length")
        return
    cut = ends[0] - max(len(stop) for stop in stops if whole[: ends[0]].endswith(stop))
    assert ("".join(found.texts), len(found.texts), len(found.tokens)) == (whole[:cut], ends[0], ends[0])
    assert found.finish_reason == "stop"


@example([([], "")] * 5 + [([0, 0], "")] * 2, 1, True, frozenset([1]))
@examples(60)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 1), max_size=11), st.sampled_from(["", "s", "t"])), max_size=12
    ),
    st.integers(1, 3),
    st.booleans(),
    st.frozensets(st.integers(0, 9)),
)
def test_blocks_are_numbered_by_all_tokens_up_to_their_end(prompts, size, keeps, kept):
    """Against a table of whole prefixes by salt; what is forgotten in between gets new numbers."""
    own, table, given_numbers = BlockNumbers(size, keeps), {}, 0
    for at, (tokens, salt) in enumerate(prompts):
        if at == 6:
            own.keep(kept)
            table = {key: number for key, number in table.items() if number in kept}
        expected = []
        for end in range(size, len(tokens) + 1, size):
            key = (salt, tuple(tokens[:end]))
            if key not in table:
                table[key], given_numbers = given_numbers, given_numbers + 1
            expected.append(table[key])
        assert own.number(tokens, salt) == expected
        for index, number in enumerate(expected):
            found = own.block(number)
            assert (found is not None) is keeps
            if found is not None:
                here = tuple(tokens[index * size : (index + 1) * size])
                assert (found.number, found.tokens, found.salt) == (number, here, "" if index else salt)
                assert found.parent == (expected[index - 1] if index else -1)
    assert (len(own), own.given) == (len(table), given_numbers)
