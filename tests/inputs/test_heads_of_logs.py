"""The first lines of a log say its kind."""

import pytest
from kvcache_sim.workload.imports.write import KINDS

#: Heads of each kind of log, and after -- heads that are not.
HEADS = {
    "aiperf": """
        {"metadata": {"credit_issued_ns": 1}}
        {"metadata": {"request_start_ns": 1}}
        --
        {"metadata": {}}
        {"credit_issued_ns": 1, "request_start_ns": 2}""",
    "openai": """
        {"time": 1, "prompt": ""}
        {"timestamp": 1, "messages": [], "usage": {}}
        {"timestamp": 1772442000, "messages": []}
        {"time": 1, "kwargs": {}}
        --
        {"time": 1}
        {"prompt": ""}
        {"messages": [], "body": {}}
        {"timestamp": 1, "messages": []}
        {"timestamp": "2026-03-02", "messages": [], "output_length": 4}""",
    "litellm": """
        {"startTime": 1, "call_type": "x"}
        [{"id": 1, "startTime": 1, "cache_hit": null}]
        {"data": [{"start_time": 1, "spend": 0
        --
        {"startTime": 1, "messages": []}
        {"messages": [{"call_type": 1, "startTime": 1}]""",
    "langfuse": """
        [{"traceId": "t", "type": "SPAN"}]
        {"data": [{"trace_id": "t", "usage_details": {}}], "meta": {}}
        {"meta": {}, "data": [{"traceId": "t", "usageDetails": {}}]}
        --
        {"traceId": "t"}
        {"type": "GENERATION"}""",
    "otel": """
        {"resourceSpans": [{"scopeSpans": [
        {"resource_spans": []}
        --
        {"spans": []}
        {"resourceLogs": []}""",
    "genai-perf": """
        {"service_kind": "openai", "experiments": [{"experiment":
        --
        {"service_kind": "openai"}""",
    "inference-perf": """
        [{"start_time": 1, "request": "{}", "info": null}]
        {"start_time": 1, "end_time": 2, "request": "
        --
        {"start_time": 1, "request": {}}""",
    "openai-batch": """
        {"custom_id": "c", "response": null, "error": {}}
        --
        {"custom_id": "c", "body": {}}""",
    "prometheus": """
        # TYPE vllm:x counter
        # HELP vllm:x y
        {"resultType": "matrix", "__name__": "vllm:x"}
        # HELP sglang:x y
        {"resultType": "matrix", "__name__": "sglang:x"}
        --
        vllm:x 1
        # TYPE x counter
        {"resultType": "matrix"}""",
    "sglang": """
        {"event": "request.finished"}
        [t] Receive: obj=G(
        [t] Finish: obj=G(
        --
        {"event": "x"}
        Start: obj=G(""",
    "kv-events": """
        ["BlockStored"]
        ["BlockRemoved"]
        ["AllBlocksCleared"]
        --
        ["BlockMoved"]""",
    "vllm": """
        INFO 12-31 23:59:58 [x] Received request r: params: S(
        DEBUG 12-31 23:59:58 Request r details: prompt: '', prompt_token_ids: [1], prompt_embeds shape: None
        --
        INFO 12-31 23:59:58 x
        Received request r: params: S(""",
    "lmcache-lookups": """
        {"timestamp": 1, "chunk_size": 256, "seq_len": 3, "chunk_hashes": []}
        --
        {"timestamp": 1, "chunk_hashes": []}""",
    "lmcache-log": """
        [2026-03-02 09:00:00,100] LMCache INFO: Reqid: a, Total tokens 5, LMCache hit tokens: 0, need to load: 0
        --
        [2026-03-02 09:00:00,100] LMCache INFO: Stored 1792 out of total 1792 tokens.
        Reqid: a, Total tokens 5, LMCache hit tokens: 0; Received request a: prompt: 'x'""",
    "sglang-batches": """
        [2026-03-02 09:00:00] Prefill batch, #new-seq: 1, #new-token: 7, #cached-token: 0, token usage: 0.00
        --
        [2026-03-02 09:00:00] Decode batch. #running-req: 1, #token: 4000
        Prefill batch. #new-seq: 1, #new-token: 7, #cached-token: 0 Finish: obj=G(""",
    "bench": """
        {"input_lens": [], "output_lens": []}
        {"total_input_tokens": 5, "request_throughput": 0.5}
        {"benchmarks": [{"requests": {"successful": []}}]}
        --
        {"total_input_tokens": 5}
        {"benchmarks": []}""",
    "dynamo-router": """
        {"worker_id": 7, "event": {"event_id": 1, "data": {"stored": {}}}}
        {"timestamp": 0, "event": {"worker_id": 7, "event": {"event_id": 1, "data": "cleared"}}}
        --
        {"event_id": 1, "data": {}}""",
    "dynamo": """
        {"schema": "dynamo.request.trace.v1"}
        --
        {"schema": "dynamo.request.trace.v2"}""",
    "claude-code": """
        {"parentUuid": null, "isSidechain": false, "sessionId": "s", "type": "user"}
        {"sessionId":"s","parentUuid":"u","type":"assistant","message":{"content":"cut
        --
        {"type": "user", "sessionId": "s"}
        {"messages": [{"content": "{\\"parentUuid\\": 1, \\"sessionId\\": 2}"}], "type": "x"}""",
    "codex": """
        {"timestamp": "t", "type": "session_meta", "payload": {}}
        {"type":"event_msg","payload":{"type":"token_count"}}
        --
        {"type": "session_meta"}
        {"type": "message", "payload": {}}""",
    "tracelab": """
        {"round_index": 0, "input_tokens_total": 9, "prefix_tokens": 0}
        --
        {"round_index": 0}""",
    "copilot": """
        {"session_id": "s", "turns": [{"llm_calls": []}]}
        --
        {"session_id": "s", "turns": [{"text": ""}]}""",
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_head_of_a_log_says_its_kind(kind):
    yes, no = (part.split("\n        ") for part in HEADS[kind].strip().split("\n        --\n        "))
    assert [KINDS[kind].detect(head.encode()) for head in (*yes, *no)] == [True] * len(yes) + [False] * len(
        no
    )
