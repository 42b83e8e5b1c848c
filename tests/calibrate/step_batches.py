"""Steps of many shapes."""

from hypothesis import strategies as st
from kvcache_sim.model.step_time import StepBatch

chunks = st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 100_000)), max_size=4).map(tuple)


@st.composite
def batches(draw):
    n = draw(st.integers(0, 256))
    longest = draw(st.integers(1, 100_000)) if n else 0
    kv = draw(st.integers(longest, n * longest)) if n else 0
    return StepBatch(draw(chunks), n, kv, longest)


def more_of_one_thing(b: StepBatch):
    """Each argument raised alone (a sequence more brings its own KV)."""
    longest = max(b.decode_max_kv_tokens, 1)
    yield StepBatch(
        (*b.prefill_chunks, (1, 0)), b.decode_sequences, b.decode_kv_tokens, b.decode_max_kv_tokens
    )
    yield StepBatch(b.prefill_chunks, b.decode_sequences + 1, b.decode_kv_tokens + longest, longest)
    if b.decode_sequences:
        yield StepBatch(b.prefill_chunks, b.decode_sequences, b.decode_kv_tokens, longest + 1)
    if b.decode_kv_tokens < b.decode_sequences * b.decode_max_kv_tokens:
        yield StepBatch(b.prefill_chunks, b.decode_sequences, b.decode_kv_tokens + 1, longest)
    if b.prefill_chunks:
        (new, past), *rest = b.prefill_chunks
        for chunk in ((new + 1, past), (new, past + 1)):
            yield StepBatch((chunk, *rest), b.decode_sequences, b.decode_kv_tokens, b.decode_max_kv_tokens)
