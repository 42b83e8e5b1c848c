"""The commented scenario that ``kvsim init`` prints."""

STARTER = """\
# A scenario of kvsim: run it with  kvsim simulate -c FILE
# Every size, rate and time carries its unit; a key that is left out has the value shown here, except that
# there are no cpu and disk tiers unless they are named. `kvsim help units` says what may be written.
name: my-first-run
seed: 0

# Requests: a generated workload (below), or a file:
#   trace: {path: trace.jsonl, block_size: 512}
workload:
  kind: conversational

# What is served, and how long a step of the engine takes. model: null means the step-time set's own.
model: null
replica:
  step_time: h100-llama-3-8b-tp1
  max_num_batched_tokens: 8192
  max_num_seqs: 256
  instant: false              # true: no service time, cache decisions only

# Where KV is kept. Capacities: 16384 blocks | 80GiB | unbounded; for the gpu also auto: what its memory
# leaves beside the weights. A number that an engine has printed is better.
cache:
  block_size: 512             # tokens; divides the trace's block
  policy: lru
  cache_output: true
tiers:
  gpu: {capacity: auto}
  cpu: {capacity: 512GiB}
  # disk: {capacity: 4TB}

# How KV moves. An edge that no channel names gets a PCIe 5 or NVMe one of its own.
write: {policy: back}         # back (at eviction) | through (at once)
fetch: {policy: always}       # always | never (recompute)
channels:
  cpu-to-gpu: {preset: pcie5-x16, latency: 10us}

# Several machines, also of different sizes:
#   machines: [{tiers: {cpu: {capacity: 64GiB}}}]
cluster: {machines: 1}
router: {policy: round-robin}
"""
