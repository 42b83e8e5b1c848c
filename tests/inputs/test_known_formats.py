"""Files of formats that are known and not read, and logs where a trace should be: one line says which."""

import json

import pytest
from kvcache_sim.cli.main import run
from kvcache_sim.workload.imports.known_formats import known_format, known_formats
from kvcache_sim.workload.imports.write import KINDS

#: The name of a format, and the first bytes of a file of it (escapes as in Python).
SAMPLES = r"""
xlsx | PK\x03\x04\x14\0\0\0[Content_Types].xml xl/workbook.xml
npz | PK\x03\x04\x14\0\0\0arr_0.npy
zip | PK\x03\x04\x14\0\0\0notes.txt
bzip2 | BZh91AY&SY
xz file | \xfd7zXZ\0\0\x04
7z | 7z\xbc\xaf\x27\x1c\0\x04
lz4 | \x04\x22\x4d\x18\x64
SQLite | SQLite format 3\0\x10\0
Redis | REDIS0011
(pcap) | \xd4\xc3\xb2\xa1\x02\0\x04\0
pcapng | \n\r\r\n\x1c\0\0\0\x4d\x3c\x2b\x1a\x01\0
Arrow | ARROW1\0\0
Avro | Obj\x01\x04
ORC | ORC\n\x03\0\0\0
HDF5 | \x89HDF\r\n\x1a\n\0
npy | \x93NUMPY\x01\0
pickle | \x80\x04\x95\x0f\0
GGUF | GGUF\x03\0
PDF | %PDF-1.7
image | \x89PNG\r\n\x1a\n
HTML | <!DOCTYPE html><html lang="en">
XML | <?xml version="1.0"?>
nginx | 10.0.0.1 - - [10/Oct/2025:13:55:36 +0000] "POST /v1/chat/completions HTTP/1.1" 200 2326
Envoy | [2025-04-15T20:17:00.310Z] "POST /v1/completions HTTP/2" 200 - 154 0 226 100
uvicorn | INFO:     127.0.0.1:5000 - "POST /v1/completions HTTP/1.1" 200 OK
HAR | {"log": {"version": "1.2", "creator": {"name": "x"}, "entries": []}}
k6 | {"type":"Point","data":{"time":"2025-01-01T00:00:00Z","value":1},"metric":"http_reqs"}
summary of k6 | {"metrics": {"http_req_duration": {"avg": 1}}}
k6 as CSV | metric_name,timestamp,metric_value,check\nhttp_reqs,1,1,
statistics of Locust | Type,Name,Request Count,Failure Count,Median Response Time\n
history of Locust | Timestamp,User Count,Type,Name,Requests/s\n
Vegeta | {"attack":"","seq":0,"code":200,"timestamp":"2025","latency":5,"bytes_out":0,"bytes_in":9}
JMeter | timeStamp,elapsed,label,responseCode\n1,2,a,200
ApacheBench | This is ApacheBench, Version 2.3
wrk | Running 30s test @ http://localhost:8000
hey | \nSummary:\n  Total:\t1.5 secs\n  Slowest:\t0.2 secs
Docker | {"log":"INFO started\n","stream":"stderr","time":"2025-01-01T00:00:00Z"}
Kubernetes | 2025-10-06T00:17:09.669794202Z stdout F INFO started
journald | {"__REALTIME_TIMESTAMP":"1","MESSAGE":"a"}
CloudWatch | {"events": [{"timestamp": 1, "message": "a", "ingestionTime": 2}]}
Loki | {"status":"success","data":{"resultType":"streams","result":[]}}
Elasticsearch | {"hits":{"hits":[{"_index":"a","_source":{"x":1}}]}}
viewer | {"features":[],"rows":[{"row_idx":0,"row":{"a":1}}]}
OpenInference | {"attributes": {"openinference.span.kind": "LLM"}}
OpenInference | {"attributes.llm.token_count.prompt": 5}
MLflow | {"info": {}, "data": {"spans": [{"attributes": {"mlflow.spanType": "LLM"}}]}}
LangSmith | {"id": "a", "run_type": "llm", "inputs": {}, "dotted_order": "x"}
Anthropic batch | {"custom_id": "a", "result": {"type": "succeeded", "message": {"role": "assistant"}}}
PostHog | {"event": "$ai_generation", "timestamp": "2026", "properties": {"$ai_input": [{"role": "user"}]}}
Datadog | {"span_id": "1", "meta": {"input": {"messages": [{"role": "user"}]}}, "metrics": {"input_tokens": 3}}
Opik | {"id": "a", "trace_id": "t", "type": "llm", "usage": {"prompt_tokens": 3}}
console exporter | {\n "name": "chat m", "context": {}, "kind": "SpanKind.CLIENT", "attributes": {}}
Tempo | {"batches": [{"scopeSpans": [{"spans": []}]}]}
Qwen Code | {"parentUuid": null, "sessionId": "s", "type": "assistant", "usageMetadata": {"promptTokenCount": 1}}
session of pi | {"type":"session","version":3,"id":"a"}
Goose | {"role":"user","created":1772442000,"content":[]}
LMDeploy | 2026-03-02 09:00:00,123 - lmdeploy - INFO - session=1, history_tokens=0, input_tokens=9, step=0
LM Studio | [2026-03-02 09:00:00][DEBUG] Received request: POST to /v1/chat/completions
Kong | {"started_at": 1, "ai": {"proxy": {"usage": {"prompt_tokens": 1}}}}
Azure's log | {"TimeGenerated": "2026", "OperationName": "ChatCompletions_Create", "PromptTokens": 1}
Langfuse's export | "id","traceId","type","startTime","usageDetails"\n
LiteLLM's spend logs as CSV | request_id,call_type,startTime,prompt_tokens\n
evalscope | {"index": 0, "prompt_tokens": 10, "first_chunk_latency": 0.1}
Portkey | {"id": "a", "ai_org": "openai", "ai_model": "x", "req_units": 4}
Weave | {"op_name": "weave:///a/b/op/openai.chat:v1", "inputs": {}}
Bedrock | {"schemaType": "ModelInvocationLog", "timestamp": "2026", "input": {"inputBodyJson": {"messages": []}}}
Zipkin | [{"traceId": "a", "timestamp": 1, "duration": 2, "localEndpoint": {}}]
Jaeger | {"data": [{"traceID": "a", "spans": [], "processes": {}}]}
profiler | {"schemaVersion": 1, "traceEvents": [{"ph": "X"}]}
telemetry of Gemini CLI | {"attributes": {"event.name": "gemini_cli.api_response"}}
session of Gemini CLI | {"sessionId": "a", "projectHash": "b", "messages": []}
Gemini's API | {"candidates": [], "usageMetadata": {"promptTokenCount": 3}}
Cline | [{"ts": 1, "type": "say", "say": "api_req_started", "text": "{}"}]
Cline | [{"role": "user", "content": [{"type": "text", "text": "<task>a</task><environment_details>"}]}]
aider | \n# aider chat started at 2025-01-01 10:00:00\n
Cursor | Date,Kind,Model,Input (w/ Cache Write),Input (w/o Cache Write),Cache Read,Output Tokens\n
OpenCode | {"id": "msg_1", "sessionID": "ses_1", "modelID": "m", "providerID": "p", "tokens": {}}
Continue | {"model": "m", "provider": "p", "promptTokens": 3, "generatedTokens": 4}
VS Code | {"requesterUsername": "a", "responderUsername": "Copilot", "requests": []}
history of Claude Code | {"display": "hi", "pastedContents": {}, "timestamp": 1}
history of Codex | {"session_id":"0199a213-81c0-7800-8aa1-bbab2a035a53","ts":1760000000,"text":"hi"}
ccusage | {"daily": [{"inputTokens": 1, "cacheCreationTokens": 2, "cacheReadTokens": 3}]}
SWE-agent | {"trajectory": [], "info": {"model_stats": {}}}
mini-swe-agent | {"info": {}, "messages": [], "trajectory_format": "mini-swe-agent-1"}
OpenHands | {"id": 1, "llm_metrics": {"accumulated_token_usage": {}}}
ChatGPT | [{"title": "a", "create_time": 1, "mapping": {}, "current_node": "x"}]
Claude's export | [{"uuid": "a", "name": "b", "chat_messages": []}]
Open WebUI | [{"id": "a", "chat": {"history": {"messages": {}, "currentId": "x"}}}]
lm-evaluation | {"doc_id": 0, "doc": {}, "resps": [], "filtered_resps": []}
notebook | {"cells": [], "nbformat": 4}
OpenAI's account | {"data": [{"results": [{"object": "organization.usage.completions.result"}]}]}
Anthropic's account | {"data": [{"results": [{"uncached_input_tokens": 1}]}]}
OpenRouter | {"data": {"native_tokens_prompt": 1, "native_tokens_completion": 2}}
Alpaca | {"instruction": "a", "input": "", "output": "b"}
MT-bench | {"question_id": 1, "category": "a", "turns": ["b"]}
TGI | {"level":"INFO","target":"text_generation_router::server"}
TGI | 2025-01-01T00:00:00Z  INFO text_generation_launcher: Args
perf_analyzer | Concurrency,Inferences/Second,Client Send\n1,2,3
iterations | {"iter": 1, "iterLatencyMS": 5.0, "kvCacheStats": {}}
TensorRT-LLM's log | iter = 1, currank_total_requests = 1/1, states = {'num_ctx_tokens': 28}
Ray Serve | INFO 2025-02-28 12:00:00,123 app_LLM abc 1f /v1 replica.py:373 - __CALL__ OK 12.3ms
llama.cpp | slot launch_slot_: id  0 | task 0 | processing task
Ollama | [GIN] 2025/05/01 - 12:00:00 | 200 |  1.2s | 127.0.0.1 | POST     "/api/chat"
Ollama's API | {"model": "m", "response": "a", "prompt_eval_count": 3, "eval_count": 4}
statistics lines | INFO 03-02 09:00:00 [loggers.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s
vLLM's log without | INFO 03-02 09:00:00 [api_server.py:12] vLLM API server version 0.11
decode lines | [2025-03-02 09:00:00] Decode batch, #running-req: 1, #token: 9
SGLang's log without | [2025-03-02 09:00:00] server_args=ServerArgs(model_path='m')
Prometheus | # HELP tgi_request_count a\n# TYPE tgi_request_count counter\n
summary of AIPerf | {"input_config": {}, "time_to_first_token": {"avg": 1}}
genai-perf as CSV | Metric,avg,min,max,p99\n
benchmark run | {"request_throughput": 1.0, "mean_ttft_ms": 5.0}
libCacheSim as CSV | time,object,size,next\n1,2,3,4
kvsim | model: x\ntiers:\n  gpu: {}\n
"""


def head(sample: str) -> bytes:
    return sample.encode().decode("unicode_escape").encode("latin-1")


PARTS = [line.partition(" | ") for line in SAMPLES.strip().splitlines()]
EXTRA = {
    "tar": b"a" * 257 + b"ustar\x0000",
    "DuckDB": b"\0" * 8 + b"DUCK",
    "oracleGeneral": b"".join(
        n.to_bytes(4, "little") + (n % 5).to_bytes(8, "little") + (99).to_bytes(4, "little") + b"\xff" * 8
        for n in range(40)
    ),
}


@pytest.mark.parametrize(("name", "data"), [*((n, head(s)) for n, _, s in PARTS), *EXTRA.items()])
def test_a_known_format_is_named_with_what_to_do_by_every_verb(tmp_path, capsys, name, data):
    path = tmp_path / "x"
    path.write_bytes(data)
    known = known_format(data)
    assert known is not None
    assert name in known.name
    for verb in (["trace", "import"], ["trace", "check"], ["cachesim", "--capacity", "9"], ["simulate"]):
        assert run([*verb, str(path)]) == 3
        out, err = capsys.readouterr()
        assert f"{path}: {known.name}: {known.lacks}; {known.do}\n" in out + err


def test_every_row_has_a_sample_and_no_row_takes_another_ones():
    data = [*(head(sample) for _, _, sample in PARTS), *EXTRA.values()]
    assert {known_format(sample) for sample in data} == set(known_formats())
    assert all(known.starts or known.holds or known.members or known.matches for known in known_formats())


@pytest.mark.parametrize(
    "verb", [["trace", "check"], ["trace", "stats"], ["cachesim"], ["curve"], ["simulate"]]
)
def test_a_log_where_a_trace_should_be_is_named_with_what_it_has(tmp_path, capsys, verb):
    answer = {
        "usage": {"prompt_tokens": 40, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 32}}
    }
    row = {"timestamp": 1760000000, "messages": [{"role": "user", "content": "a b"}], "response": answer}
    path = tmp_path / "requests.jsonl"
    path.write_text(json.dumps(row) + "\n" + json.dumps(row) + "\n")
    assert run([*verb, str(path)]) == 3
    line = "".join(capsys.readouterr())
    assert f"{path}: a log, no trace: {KINDS['openai'].help}; got 2 requests with times, prompts" in line
    assert "cached tokens" in line
    assert f"; kvsim trace import {path} -o trace.jsonl\n" in line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"type": "user", "uuid": "a", "timestamp": "2025-01-01"}\n', "got a row of type, uuid, timestamp;"),
        (
            '[{"startTime": "2025", "name": "x"}]',
            "JSON array of no known format; got objects of startTime, name;",
        ),
        ('[\n {"input_length": 3,\n "output_length": 1}]', "jq -c '.[]' FILE writes it so"),
        ("[2025-01-01 09:00:00] started, all well\n", "no known trace format; got [2025-01-01"),
        ("INFO started, ready: {a}, b\n", "no known trace format; got INFO"),
        ("id,tokens\n1,5\n", "CSV of no known columns; got id,tokens"),
    ],
)
def test_no_hint_names_a_member_of_another_format(tmp_path, capsys, text, said):
    (tmp_path / "x").write_text(text)
    assert run(["trace", "check", str(tmp_path / "x")]) == 3
    line = "".join(capsys.readouterr())
    assert said in line
    assert "quotes" not in line
    assert ("jq" in line) == ("jq" in said)
