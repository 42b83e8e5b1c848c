"""The machines of a run whose schedule is watched."""

from hypothesis import strategies as st
from kvcache_sim.serving.settings import ReplicaSettings

replicas = st.builds(
    ReplicaSettings,
    scheduler=st.just("vllm"),
    max_num_batched_tokens=st.sampled_from([64, 150, 512, 2048]),
    max_num_seqs=st.sampled_from([1, 3, 8, 40]),
    queue_order=st.sampled_from(["fcfs", "priority"]),
    watermark=st.sampled_from([0.0, 0.0, 0.05]),
    reserve_full_isl=st.booleans(),
    long_prefill_token_threshold=st.sampled_from([0, 0, 50]),
    long_prefill_token_threshold_adaptive=st.booleans(),
    max_num_active_seqs=st.sampled_from([None, 1]),
    prefill_schedule_interval=st.sampled_from([1, 1, 3, 10]),
    max_num_queued_reqs=st.sampled_from([None, None, 10]),
    step_overhead_ns=st.sampled_from([0, 3_000_000]),
    async_scheduling=st.sampled_from(["none", "length", "stop-token"]),
    client_offset_ns=st.sampled_from([0, 5_000_000]),
)
