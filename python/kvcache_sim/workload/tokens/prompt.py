"""One prompt at a time: the interfaces of seed 002's `PromptGenerator` and of its tokenizer."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base import rng
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng.hash_id import HashId
from kvcache_sim.workload.tokens.collisions import IdCode
from kvcache_sim.workload.tokens.corpus import PromptConfig
from kvcache_sim.workload.tokens.row_key import RowKey, block_sizes, row_generator, row_key_text


class TextTokenizer(Protocol):
    """Interface of a converter from token ids to text, such as the tokenizer of a published model."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of token ids."""


class Tokenizer:
    """The tokenizer without a model: a token id is its decimal digits, separated by spaces."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the ids as words."""
        return " ".join(map(str, token_ids))

    def encode(self, text: str) -> list[int]:
        """Return the ids of words written by `decode`; ValueError for other words."""
        return [int(word) for word in text.split()]


#: Draws of a length before an error: the ids and the standard deviation are then incompatible.
_MAX_LENGTH_DRAWS = 10_000


class _Call(NamedTuple):
    """A call of the generator: its row, and its number in the row from 0."""

    row: int
    number: int


class PromptGenerator:
    """Prompts whose blocks depend only on the root seed, the scope and the block's hash id.

    Create one in each worker, after `rng.init`; a pickled copy is equivalent to its original. A block is
    stored as its start offset in the corpus and its size, never as tokens. Tokens beyond the ids, and prompts
    without ids, are drawn with the row's key, so they too are the same on any worker.
    """

    def __init__(self, config: PromptConfig, tokenizer: TextTokenizer) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._corpus_rng = rng.derive("dataset.prompt.corpus")
        self._hash_id_corpus_rng = rng.HashIdRandomGenerator.from_base_rng(self._corpus_rng, config.trace_id)
        self._row_rng = row_generator(self._hash_id_corpus_rng, config.trace_id)
        self._length_rng = rng.HashIdRandomGenerator.from_base_rng(
            rng.derive("dataset.prompt.length"), config.trace_id
        )
        self._code = IdCode(config.source) if config.content == "collision-free" else None
        #: id's text → (start offset in the corpus, tokens of its block)
        self._cache: dict[str, tuple[int, int]] = {}
        self._row = 0
        self._call = 0
        self._row_is_given = False

    def generate(
        self,
        mean: float,
        stddev: float = 0,
        hash_ids: Sequence[HashId] | None = None,
        row_key: RowKey | None = None,
    ) -> str:
        """Return the text of `generate_tokens`."""
        return self._tokenizer.decode(self.generate_tokens(mean, stddev, hash_ids, row_key).tolist())

    def generate_tokens(
        self,
        mean: float,
        stddev: float = 0,
        hash_ids: Sequence[HashId] | None = None,
        row_key: RowKey | None = None,
    ) -> NDArray[np.uint32]:
        """Return one prompt's token ids (uint32, one dimension).

        Its length is ``mean``, or with ``stddev`` a normal draw, rounded up, that needs as many of the ids'
        blocks as the mean does. ``row_key`` is (session, turn) or the row's number; without it the key is the
        number of calls so far, or the row set by `at_row`.

        Raises UsageError for a length below 1, more ids than fit the length, an id used at two sizes, a
        window longer than the corpus, and for a missing row key in a worker process, whose number of calls is
        not reproducible; HashIdTypeError for an invalid id.
        """
        names = [rng.hash_id_text(hash_id) for hash_id in hash_ids or ()]
        call, self._call = _Call(self._row, self._call), self._call + 1
        if not self._row_is_given:
            self._row, self._call = self._row + 1, 0
        length = self._length(mean, stddev, names, row_key, call)
        sizes = block_sizes(length, len(names), self._config.block_size)
        self._check_sizes(names, sizes)
        parts = [self._block(name, size) for name, size in zip(names, sizes, strict=True)]
        tail = length - sum(sizes)
        if tail:
            self._row_rng.reseed_for_hash_id(self._key(row_key, call))
            parts.append(self._window(self._row_rng.randrange(self._config.source.size), tail))
        return np.concatenate(parts)

    def at_row(self, row: int) -> None:
        """Set the number of the current row, for calls without a row key; `pool.Pool` calls this."""
        self._row, self._call, self._row_is_given = row, 0, True

    def _sample_tokens(self, num_tokens: int, use_rng: rng.RandomGenerator | None = None) -> list[int]:
        """Return a window of the corpus from a drawn start; ``use_rng`` None advances the corpus's own."""
        if num_tokens < 1:
            raise UsageError(
                "a sample needs a token", where="num_tokens", got=str(num_tokens), expected="at least 1"
            )
        start = (use_rng or self._corpus_rng).randrange(self._config.source.size)
        tokens: list[int] = self._window(start, num_tokens).tolist()
        return tokens

    def _window(self, start: int, length: int) -> NDArray[np.uint32]:
        return self._config.source.window(start, length)

    def _check_sizes(self, names: list[str], sizes: list[int]) -> None:
        asked: dict[str, int] = {}
        for name, size in zip(names, sizes, strict=True):
            known = self._cache[name][1] if name in self._cache else asked.setdefault(name, size)
            if known != size:
                raise UsageError(
                    f"hash id {name} asked at two sizes", where="hash_ids",
                    got=f"{size} tokens", expected=f"{known} tokens, as before",
                )  # fmt: skip

    def _block(self, name: str, size: int) -> NDArray[np.uint32]:
        if name not in self._cache:
            self._hash_id_corpus_rng.reseed_for_hash_id(name)
            self._cache[name] = (self._hash_id_corpus_rng.randrange(self._config.source.size), size)
        separator = [] if self._config.separator is None else [self._config.separator]
        window = self._window(self._cache[name][0], size - len(separator))
        if self._code is not None:
            code = self._code.tokens(name)[: len(window)]
            window[: len(code)] = code
        return np.concatenate([np.array(separator, np.uint32), window])

    def _length(
        self, mean: float, stddev: float, names: list[str], row_key: RowKey | None, call: _Call
    ) -> int:
        if not math.isfinite(mean) or not math.isfinite(stddev) or stddev < 0:
            raise UsageError(
                "not a length",
                where="mean, stddev",
                got=f"{mean}, {stddev}",
                expected="finite, stddev not negative",
            )
        if stddev == 0:
            return round(mean)
        block_size = self._config.block_size
        block_sizes(math.ceil(mean), len(names), block_size)
        covered = block_size * len(names)
        lower, upper = (covered - block_size, covered) if names and mean <= covered else (covered, math.inf)
        # ids that cover the prompt determine its content and length: no row key is needed
        whole = bool(names) and mean <= covered
        self._length_rng.reseed_for_hash_id(f"id:{names[-1]}" if whole else self._key(row_key, call))
        for _ in range(_MAX_LENGTH_DRAWS):
            length = math.ceil(self._length_rng.gauss(mean, stddev))
            if lower < length <= upper:
                return length
        raise UsageError(
            "no drawn length fits the hash ids", where="stddev", got=str(stddev), hint="use a smaller one"
        )

    def _key(self, row_key: RowKey | None, call: _Call) -> str:
        if row_key is not None:
            return row_key_text(row_key)
        if multiprocessing.parent_process() is not None and not self._row_is_given:
            raise UsageError(
                "tokens beyond the hash ids need a row key in a worker process", where="row_key",
                hint="pass (session, turn) or the row's number, or use kvcache_sim.workload.tokens.pool",
            )  # fmt: skip
        return row_key_text(call.row if call.number == 0 else (f"row:{call.row}", call.number))
