"""Seed 002's "Parallel Worker Setup" and "Testing Reproducibility", word for word but for the imports.

``mp`` is set by the test to the spawning or the forking pool.
"""

from kvcache_sim.base import rng
from kvcache_sim.workload.tokens import PromptGenerator
from kvcache_sim.workload.tokens.pool import spawn as mp
from seed_002_filled_in import config, tokenizer, traces

# fmt: off

# Worker initialization (each process)
def worker_init(global_seed):
    rng.init(global_seed)  # Same seed for all workers

    # Each worker gets its own generator and cache
    generator = PromptGenerator(config, tokenizer)
    return generator

# Worker processing
def worker_process(generator, trace_entry):
    if trace_entry.hash_ids:
        prompt = generator.generate(
            mean=trace_entry.input_length,
            hash_ids=trace_entry.hash_ids
        )
    else:
        prompt = generator.generate(mean=trace_entry.input_length)

    return prompt

def test_parallel_reproducibility():
    # Run 1: Process traces in parallel
    with mp.Pool(processes=4, initializer=worker_init, initargs=(42,)) as pool:
        results_1 = pool.map(worker_process, traces)

    # Run 2: Process same traces with same seed
    with mp.Pool(processes=4, initializer=worker_init, initargs=(42,)) as pool:
        results_2 = pool.map(worker_process, traces)

    # Results are identical
    assert results_1 == results_2
