"""Does a CPU tier help this traffic? Two runs, what differs, a data frame and a picture."""

import kvcache_sim as kv

chats = kv.generate("conversational", seed=7, requests=800, output_tokens={"kind": "constant", "value": 64})
small = kv.Scenario(tiers={"gpu": "96 blocks"}, replica={"max_num_seqs": 16})
without = kv.simulate(chats, small, name="gpu-alone")
with_cpu = kv.simulate(chats, small, tiers={"cpu": "8GiB"}, name="with-cpu")

print(kv.compare(without, with_cpu))
requests = with_cpu.to_pandas()
requests["ttft_ms"] = (requests.first_token_ns - requests.arrival_ns) / 1e6
print(requests.groupby("outcome", observed=True).ttft_ms.describe())
with_cpu.plot("ttft_waterfall").save("ttft.svg", force=True)
