"""Formats by a trace's first bytes, and JSON values that are read whole however a file is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim._core import TraceProblem
from kvcache_sim.workload.readers import json_stream
from kvcache_sim.workload.readers.format import SIGNS, first_row, header
from support.examples import examples

#: The first bytes of a file, and the formats of which they may be.
HEADS = r"""
     [{"conversations": [{"value": "a"}]}] → sharegpt
    {"conversations": [{"value": 1 → sharegpt
    x "conversations" "value" →
    [{"conversations": [{"text": "a"}]}] →
    [{"other": [{"value": "a"}]}] →
    [{"conversations": [{"role": "user", "content": 1 → sharegpt
    {"conversation_id": 1, "conversation": [{"role": "user"}]} → sharegpt
    [\n {"items": [{"from": "human"}]}] → sharegpt
    {"items": [{"id": 1}]} →
    {"conversation": {"id": 1}} →
    {"timestamp": 0, "text_input": "a"} → mooncake-texts
    {"messages": [], "output_length": 1} → mooncake-texts mooncake
    {"messages": [], "timestamp": 1.5} → mooncake-texts
    {"messages": [], "timestamp": 1772442000} →
    {"prompt": "a", "output_tokens": 1} → vllm-custom
    {"prompt": "a", "time": 1} →
    {"prompt": "a", "completion": "b"} →
    {"custom_id": 1, "body": {"input": "a → openai
    {"session_id": 1, "turns": [{"messages": [ → aiperf-dag
    {"session_id": 1, "turns": []}\n{"spawns": 1} → aiperf-dag
    {"session_id": 1, "turns": [], "text": 1}\n{"forks": 1} → aiperf-dag aiperf-multi-turn
    {"session_id": 1, "orchestrator": 1} → aiperf-dag
    {"session_id": 1, "turns": []} →
    {"session_id": 1, "forks": []} →
    {"turns": [], "forks": 1, "orchestrator": 1} →
    {"turns": [{"texts": [1]}]} → aiperf-multi-turn
    {"texts": [1]} →
    \n{"messages": [{"role": "user"}]} → openai
    [{"messages": [{"role":  → openai
    x {"messages": [{"role":  →
    {"messages": []} →
    {"chat_id": 1, "parent_chat_id": -1} → bailian
    {"chat_id": 1} →
    {"input_bytes": 1, "output_bytes": 2 → lmcache
    {"input_bytes": 1} →
    {"session": 1, "rows": [ → weka
    {"rows": [1]} →
    {"requests": [], "hash_id_scope": 1} → aiperf-weka
    {"requests": []} →
    {"hash_id_scope": 1} →
    {"request_id": 1, "hash_ids": [], "wait_for": 1} → dynamo-agentic mooncake
    {"request_id": 1, "hash_ids": []}\n{"branches": 1} → dynamo-agentic mooncake
    {"request_id": 1, "hash_ids": []} → mooncake
    {"request_id": 1, "tool_events": 1} →
    {"hash_ids": [], "wait_for": 1} → mooncake
    \xef\xbb\xbf \n{"input_length": 4}\n → mooncake
    {"output_length": 4} → mooncake
    [{"input_length": 4}] →
    TIMESTAMP,"ContextTokens", GeneratedTokens,more\r\n1 → azure
    TIMESTAMP,ContextTokens\n →
    \xef\xbb\xbfTimestamp,Request tokens,Response tokens → burstgpt
    arrived_at,num_prefill_tokens,num_decode_tokens → vidur
    """


@pytest.mark.parametrize("line", HEADS.strip("\n ").splitlines())
def test_the_signs_of_a_files_first_bytes(line):
    head, _, names = line.removeprefix("    ").partition(" →")
    data = head.encode().decode("unicode_escape").encode("latin-1")
    assert [name for name, sign in SIGNS.items() if sign(data)] == names.split()


def test_the_first_row_is_whole_or_the_names_that_are_there():
    assert first_row(b'\xef\xbb\xbf\n {"a": {"b": [1]}}\n{"c"') == {"a": {"b": [1]}}
    assert first_row(b'{"a b": 1, "c" : "x"}, "d-e": 1, "f') == {"a b": None, "c": None}
    assert first_row(b"[1]") is first_row(b'"a"') is None
    assert header(b'\xef\xbb\xbfa, "b c" ,d\r\ne,f') == ["a", "b c", "d"]


class Pieces:
    """A file whose reads end after so many bytes each, whatever is asked for."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self.data, self.sizes, self.reads = data, sizes, 0

    def read(self, want: int) -> bytes:
        size = self.sizes[self.reads % len(self.sizes)]
        self.reads += 1
        piece, self.data = self.data[:size], self.data[size:]
        return piece


@examples(60)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.sampled_from(("", "[", "\ufeff[\n")))
def test_elements_of_a_json_file_are_read_whole_however_it_is_cut(sizes, head):
    """A number may be cut at the end of a piece; each element has the line of its first sign."""
    written = [123, "a\nä€", {"b": [1, 2]}, True, None, -67]
    parts = ["123,\n", '"a\\nä€"\n', '\n{"b": [1,\n2]},', "true\t", "null\r\n", "-67"]
    first = 1 + head.count("\n")
    lines = [first, first + 1, first + 3, first + 4, first + 4, first + 5]
    source = Pieces((head + "".join(parts) + ("]" if head else "")).encode(), sizes)
    assert list(json_stream.objects(source)) == list(zip(lines, written, strict=True))


def test_elements_are_given_before_the_file_is_read_to_its_end():
    source = Pieces(b"1 2 " * 50, [8])
    found = json_stream.objects(source)
    assert [next(found) for _ in range(5)] == [(1, 1 + n % 2) for n in range(5)]
    assert source.reads == 2


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ('[1,\n2, {"a": 1', 2, "unterminated JSON (file may be truncated)"),
        ("[1,\n2,\n", 3, "unterminated JSON (file may be truncated)"),
        ('1\n "ab', 2, "unterminated JSON (file may be truncated)"),
        ("1\n\n x 2", 3, "not JSON"),
        ("[NaN]", 1, "not JSON"),
        ('[1] {"a":' + "[" * 100_000, 1, "JSON nested too deep"),
        (b"1\n23\xff", 2, "not UTF-8"),
    ],
)
def test_json_that_cannot_be_read_names_its_line(text, line, problem):
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(TraceProblem) as raised:
        list(json_stream.objects(Pieces(data, [4] if len(data) < 99 else [1 << 20])))
    assert raised.value.args[0] == line
    assert problem in raised.value.args
