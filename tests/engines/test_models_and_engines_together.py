"""Models of today in little memory under any engine's cache: runs with and without lookahead are the same.

Capacities are so small that requests are preempted and readmitted with partial answers, which a session's
next turn names.
"""

from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from support.engine_caches import CACHES
from support.examples import examples
from support.lookahead import agree_or_by_the_clock
from support.setting_effects import CHANGES
from support.setting_traces import filled

MODELS = ["llama-3-8b", "gpt-oss-20b", "qwen3.5-35b-a3b", "gemma-3-27b", "mixtral-8x7b", "llama-4-scout"]
BASE = """
seed: {seed}
model: {model}
workload:
  kind: conversational
  requests: {requests}
  arrivals: {{process: poisson, rate_per_s: {rate}}}
  turns: {{kind: uniform, min: 1, max: 5}}
  think_time: {{kind: lognormal, median: 2s, sigma: 0.8, min: 0.1s, max: 20s}}
  first_input_tokens: {{kind: lognormal, median: 700, sigma: 0.8, min: 17, max: 3000}}
  output_tokens: {{kind: uniform, min: 1, max: {answer}}}
cache: {{block_size: {block}}}
tiers: {{gpu: {{capacity: {gpu} blocks}}}}
cluster: {{machines: {machines}}}
replica: {{max_num_seqs: 8, max_num_batched_tokens: {budget}, async_scheduling: {ends}}}
"""


@examples(20)
@given(
    model=st.sampled_from(MODELS),
    cache=st.sampled_from(list(CACHES)),
    block=st.sampled_from([16, 32, 48, 64]),
    tokens=st.sampled_from([3_600, 4_500, 8_000]),
    cpu=st.sampled_from([20, 150, 600]),
    answer=st.sampled_from([40, 400, 900]),
    rate=st.sampled_from([1, 20]),
    budget=st.sampled_from([512, 2048]),
    machines=st.sampled_from([1, 1, 2]),
    ends=st.sampled_from(["none", "length", "stop-token"]),
    seed=st.integers(1, 10**6),
)
def test_a_model_in_little_memory_is_served_alike(cache, tokens, cpu, **drawn):
    # a pool of groups takes a block of each for the same tokens
    gpu = tokens // drawn["block"] * (1 if drawn["model"] in ("llama-3-8b", "mixtral-8x7b") else 3)
    text = BASE.format(requests=25, gpu=gpu, **drawn)
    agree_or_by_the_clock(*(setting.format(cpu=cpu) for setting in CACHES[cache]), text=text)


@examples(15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    model=st.sampled_from(MODELS),
    cache=st.sampled_from(list(CACHES)),
    row=st.sampled_from(CHANGES),
    cpu=st.sampled_from([150, 600]),
    answer=st.sampled_from([40, 400]),
    machines=st.sampled_from([1, 2]),
    seed=st.integers(1, 10**6),
)
def test_any_setting_goes_with_them_or_is_refused(cache, row, cpu, folder, **drawn):
    gpu = 200 if drawn["model"] in ("llama-3-8b", "mixtral-8x7b") else 400
    text = BASE.format(requests=20, rate=20, block=64, gpu=gpu, budget=512, ends="none", **drawn)
    settings = tuple(setting.format(cpu=cpu) for setting in CACHES[cache])
    agree_or_by_the_clock(*filled((*settings, *row.given, row.assignment), folder), text=text)
