"""Every code example of seed 002 runs with only its imports changed."""

import re
import textwrap
from typing import Any

import pytest
import seed_002_pool
from kvcache_sim.base import rng
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng import HashIdRandomGenerator
from kvcache_sim.workload.tokens import PromptConfig, PromptGenerator, Tokenizer
from kvcache_sim.workload.tokens.pool import fork, spawn
from seed_002_filled_in import traces
from support.shared_files import ROOT, shared

DOCUMENT = "seeds/002_12ba65b286563868.txt"
#: The only change made to an example: where its names come from.
IMPORTS = {
    "from aiperf.common import random_generator as rng": "from kvcache_sim.base import rng",
    "from aiperf.common.hash_id_random_generator import": "from kvcache_sim.base.rng import",
    "from aiperf.dataset.generator.prompt import": "from kvcache_sim.workload.tokens import",
    "from aiperf.common.config import": "from seed_002_filled_in import",
    "from aiperf.common.tokenizer import": "from seed_002_filled_in import",
    "import multiprocessing as mp": "from kvcache_sim.workload.tokens.pool import spawn as mp",
}


@pytest.fixture(autouse=True)
def _fresh_root():
    rng.reset()
    yield
    rng.reset()


@pytest.fixture(scope="module")
def blocks() -> list[str]:
    text = shared(DOCUMENT).read_text()
    found = [textwrap.dedent(block) for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]
    for theirs, ours in IMPORTS.items():
        found = [block.replace(theirs, ours) for block in found]
    assert len(found) == 14
    return found


def block_with(blocks: list[str], text: str) -> str:
    (block,) = [block for block in blocks if text in block]
    return block


def run(block: str, **names: Any) -> dict[str, Any]:
    """Run one example with the names it takes for granted; return what it defined."""
    rng.reset()
    if "rng.init(" not in block:
        rng.init(42)
    space = {
        "rng": rng,
        "HashIdRandomGenerator": HashIdRandomGenerator,
        "PromptGenerator": PromptGenerator,
        **names,
    }
    exec(compile(block, "<seed 002>", "exec"), space)
    return space


def sample_tokens(generator: rng.RandomGenerator) -> list[int]:
    return [generator.randrange(50_000) for _ in range(16)]


class LastReseeded(HashIdRandomGenerator):
    """Knows which generator was re-seeded last: the one that an example's ``generate_tokens()`` means."""

    last: HashIdRandomGenerator

    def reseed_for_hash_id(self, hash_id):
        super().reseed_for_hash_id(hash_id)
        LastReseeded.last = self


def generate_tokens() -> list[int]:
    return sample_tokens(LastReseeded.last)


def test_usage(blocks):
    space = run(block_with(blocks, "# Initialize once per worker"), sample_tokens=sample_tokens)
    again = HashIdRandomGenerator.from_base_rng(rng.derive("dataset.prompt.corpus"))
    again.reseed_for_hash_id(123)
    assert space["tokens"] == sample_tokens(again)


def test_guarantee_of_determinism(blocks):
    rng.init(42)
    hash_rng = LastReseeded.from_base_rng(rng.derive("dataset.prompt.corpus"))
    run(block_with(blocks, "assert tokens_1 == tokens_2"), hash_rng=hash_rng, generate_tokens=generate_tokens)


def test_guarantee_of_independent_workers(blocks):
    block = block_with(blocks, "assert worker1_tokens == worker2_tokens")
    run(block, HashIdRandomGenerator=LastReseeded, generate_tokens=generate_tokens)


def test_guarantee_of_any_order(blocks):
    rng.init(42)
    hash_rng = LastReseeded.from_base_rng(rng.derive("dataset.prompt.corpus"))
    block = block_with(blocks, "assert cache[100] == cache2[100]")
    space = run(block, hash_rng=hash_rng, generate_tokens=generate_tokens, cache={}, cache2={})
    assert len({tuple(tokens) for tokens in space["cache"].values()}) == 3


def test_independent_caches(blocks):
    run(block_with(blocks, "# Worker 1 processes: hash_ids [1, 2, 3]"))  # comments alone: done here
    caches = []
    for hash_ids in ([1, 2, 3], [3, 4, 5]):
        rng.reset()
        rng.init(42)
        generator = PromptGenerator(PromptConfig(), Tokenizer())
        caches.append({hash_id: generator.generate(512, hash_ids=[hash_id]) for hash_id in hash_ids})
    assert caches[0][3] == caches[1][3]


def test_the_method_of_the_document_is_ours(blocks):
    """The document's own ``reseed_for_hash_id``, set into a subclass, leaves the same state as ours."""
    import hashlib

    import numpy as np

    space = run(block_with(blocks, "seed_string = f"), hashlib=hashlib, np=np)
    document = type("Document", (HashIdRandomGenerator,), {"reseed_for_hash_id": space["reseed_for_hash_id"]})
    for hash_id in (0, 1, 123, -1, 2**63, 10**30):
        theirs, ours = document(42), HashIdRandomGenerator(42)
        theirs.reseed_for_hash_id(hash_id)
        ours.reseed_for_hash_id(hash_id)
        assert theirs.seed == ours.seed
        assert sample_tokens(theirs) == sample_tokens(ours)
        assert theirs.random_batch(4).tolist() == ours.random_batch(4).tolist()


def test_the_flow_of_the_document_is_ours(blocks):
    """The document's own ``_generate_cached_prompt``, set into a subclass, samples the blocks that ours does."""
    space = run(block_with(blocks, "def _generate_cached_prompt"), current_block_size=512)
    document = type(
        "Document", (PromptGenerator,), {"_generate_cached_prompt": space["_generate_cached_prompt"]}
    )
    theirs, ours = document(PromptConfig(), Tokenizer()), PromptGenerator(PromptConfig(), Tokenizer())
    theirs._generate_cached_prompt(1024, [7, 8], 512)
    assert theirs._cache[7] + theirs._cache[8] == ours.generate_tokens(1024, hash_ids=[7, 8]).tolist()


def test_basic_usage(blocks):
    prompt = run(block_with(blocks, "hash_ids=[123, 456, 789]"))["prompt"]
    assert prompt == run(block_with(blocks, "hash_ids=[123, 456, 789]"))["prompt"]
    assert 800 < len(prompt.split()) <= 1200


def test_best_practices(blocks):
    run(
        block_with(blocks, "Re-initializing during processing"), global_seed=42, traces=traces
    )  # the same seed again: no harm
    run(block_with(blocks, "# Don't share"), config=PromptConfig(), tokenizer=Tokenizer())
    space = run(block_with(blocks, "# ✓ Good: Use consistent derivation names"))
    assert len({space[name].seed for name in ("corpus_rng", "corpus_rng1", "corpus_rng2")}) == 3
    assert run(block_with(blocks, "global_cache = {}"))["PromptGenerator"]()._cache == {}


def test_the_pool_of_the_document_is_run_word_for_word(blocks):
    """`seed_002_pool` holds the two blocks unchanged, line by line."""
    ours = (ROOT / "tests" / "inputs" / "seed_002_pool.py").read_text()
    for block in (block_with(blocks, "def worker_init(global_seed)"), block_with(blocks, "mp.Pool")):
        body = re.sub(r"^(from|import) .*\n+", "", block)
        assert body.strip() in ours


@pytest.mark.parametrize("context", [spawn, fork], ids=["spawn", "fork"])
def test_parallel_reproducibility(context, monkeypatch):
    monkeypatch.setattr(seed_002_pool, "mp", context)
    seed_002_pool.test_parallel_reproducibility()


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_the_pool_agrees_with_one_process(processes):
    """Tails and rows without ids included; and each worker handled its share."""
    with fork.Pool(processes, seed_002_pool.worker_init, (42,)) as pool:
        parallel = pool.map(seed_002_pool.worker_process, traces)
        counts = pool.items_by_pid
    generator = seed_002_pool.worker_init(42)
    assert parallel == [seed_002_pool.worker_process(generator, entry) for entry in traces]
    assert len(set(parallel)) == len(traces)
    assert sorted(counts.values()) == sorted(len(traces[k::processes]) for k in range(processes))


def _without_a_row_key(entry):
    rng.init(42)
    return PromptGenerator(PromptConfig(), Tokenizer()).generate(entry)


def test_a_worker_of_another_pool_must_say_which_row_it_has():
    import multiprocessing

    with multiprocessing.get_context("fork").Pool(1) as pool, pytest.raises(UsageError, match="row key"):
        pool.map(_without_a_row_key, [100])
