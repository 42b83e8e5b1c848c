"""Values of imported logs: dates, counts, prompts, answers and events, each in a log of its own with a good line."""

import json
from hashlib import blake2b

import pytest
from kvcache_sim.base.errors import TraceError
from kvcache_sim.workload.imports.kind import Reading
from kvcache_sim.workload.imports.naming import Naming, Notes, salt_of
from kvcache_sim.workload.imports.source import lines_of, log_clock_ns
from kvcache_sim.workload.imports.write import import_logs
from kvcache_sim.workload.readers.dates import time_ns
from support.product.traces import salted_ids, salted_names

SECOND = 10**9
DATES = """0 99999999999 100000000000 1.5 99999999999999 100000000000000 99999999999999999 100000000000000000
    10000000000000000000 9999999999999999999 -1 -0.5 1000000000000.125 "5.5" "1970-01-02"
    "1970-01-01T00:00:01.5+00:01" "1969-12-31T23:59:59Z" true "x" null [] Infinity"""
USAGES = """
    {"prompt_tokens": 5, "completion_tokens": 6, "cached_tokens": 2}
    {"input_tokens": 5, "output_tokens": 0}
    {"prompt_tokens": 1, "input_tokens": 2, "completion_tokens": 3, "output_tokens": 4}
    {"prompt_tokens_details": {"cached_tokens": 7}, "cached_tokens": 8}
    {"input_tokens_details": {"x": 1}, "cached_tokens": 8}
    {"input_tokens_details": {}, "cached_tokens": 8}
    {"prompt_tokens": 2147483647}
    {"prompt_tokens": 2147483648}
    {"prompt_tokens": -1}
    {"prompt_tokens": 3.0}
    {"prompt_tokens": 3.5}
    {"prompt_tokens": true}
    {"prompt_tokens": "3"}
    {"prompt_tokens": null, "input_tokens": 4}
    """
BODIES = """
    {"prompt": ""}
    {"prompt": ["x"]}
    {"prompt": [[1, 2]]}
    {"prompt": [1, 4294967295]}
    {"prompt": [4294967296]}
    {"prompt": [-1]}
    {"prompt": [true]}
    {"prompt": [1.0]}
    {"prompt": []}
    {"prompt": ["x", "y"]}
    {"prompt": {}}
    {"prompt": null, "messages": []}
    {"messages": "x", "prompt": "x"}
    {"messages": null, "prompt": "xyzzy"}
    {"messages": [{"content": "x"}]}
    {"messages": [{"role": "user", "content": [{"text": "a"}, {"image": "b"}, "c", {"text": 5}]}, {"role": "tool"}]}
    """
ANSWERS = """
    {"choices": []}
    {"choices": {}}
    {"choices": [{"text": "aaaaa"}, {"text": "b"}]}
    {"choices": [{"text": "", "message": {"content": "bbbbbbbbb"}}]}
    {"choices": [{"text": null, "message": {"content": "bbbbbbbbb"}, "delta": {"content": "c"}}]}
    {"choices": [{"delta": {"content": "ccccc"}}]}
    {"choices": [{"message": {"content": [{"text": "aaaaa"}, {"text": 5}, {"text": "ddddd"}]}}]}
    {"choices": [{}]}
    {"choices": [5]}
    """
STORED = '{"type": "BlockStored", "block_hashes": [1, 2], "block_size": 16}'
EVENTS = f"""
    [3, [{STORED}], 3]
    {{"ts": 3, "events": [{STORED}], "data_parallel_rank": 4}}
    [3, [["BlockStored", [1, 2], null, [1, 2], 16, null, "gpu"], ["BlockRemoved", [7], "disk"], ["AllBlocksCleared"]]]
    [3, [{STORED}, ["Else"], {{"type": 3}}, {{}}, [], 5]]
    [3, [{STORED.replace("16", "1048576")}]]
    [3, [{STORED.replace("16", "1048577")}]]
    [3, [{STORED.replace("16", "0")}]]
    [3, [{STORED.replace("16", "1.0")}]]
    [3, [{STORED.replace("[1, 2]", "5")}]]
    [3, [{STORED.replace("[1, 2]", "[true]")}]]
    [3, [{STORED.replace("[1, 2]", "[1.5]")}]]
    [3, [{STORED[:-1]}, "parent_block_hash": [1]}}]]
    [3, [{{"type": "BlockStored", "block_hashes": []}}]]
    [true, [{STORED}]]
    ["1", [{STORED}]]
    [-1, [{STORED}]]
    [100000000000, [{STORED}]]
    [1, {{}}]
    {{"ts": 1}}
    5
    """
DYNAMO = """
    {"request_received_ms": 0, "output_tokens": 4, "input_tokens": 7, "replay": {"input_length": 40}}
    {"request_received_ms": -1, "output_tokens": 4, "input_tokens": 7}
    {"request_received_ms": 1900, "input_tokens": 7}
    {"request_received_ms": 1900, "output_tokens": 0, "input_tokens": 7}
    {"request_received_ms": 1900, "output_tokens": 4}
    {"request_received_ms": 1900, "output_tokens": 4, "input_tokens": 0}
    {"request_received_ms": 1900, "output_tokens": 4, "input_tokens": 7, "replay": {"input_length": 0}}
    {"output_tokens": 4, "input_tokens": 7}
    {"request_received_ms": NaN, "output_tokens": 4, "input_tokens": 7}
    {"request_received_ms": 1900, "output_tokens": 4, "input_tokens": 7, "ttft_ms": NaN}
    {"request_received_ms": 1900, "output_tokens": 4, "input_tokens": 7, "cached_tokens": -1}
    """
SGLANG = """
    "event": "request.received", "obj": {"rid": "b", "input_ids": [1, 2]}
    FINISHED {"rid": "b"}, "out": {"meta_info": {"prompt_tokens": 2, "completion_tokens": 3}}
    FINISHED {"rid": "a"}, "out": {"meta_info": {"prompt_tokens": 4, "completion_tokens": 3}}
    FINISHED {"rid": "a"}, "out": {"meta_info": {"completion_tokens": 3, "cached_tokens": 2}}
    FINISHED {"rid": "a"}, "out": {"output_ids": [7, 8, 9], "meta_info": {"completion_tokens": 3}}
    FINISHED {"rid": "a"}, "out": {"output_ids": [7, 8], "meta_info": {"completion_tokens": 3}}
    FINISHED {"rid": "a"}, "out": {"meta_info": {"completion_tokens": 3, "e2e_latency": 9000}}
    FINISHED {"rid": "b", "input_ids": [5]}, "out": {"meta_info": {"completion_tokens": 3, "e2e_latency": 0.25}}
    FINISHED {"rid": "b"}, "out": {"meta_info": {"prompt_tokens": 2, "completion_tokens": 3, "e2e_latency": NaN}}
    "event": "other"
    """
AIPERF = """
    "metrics": {"PROMPT": {"value": 5}, "ANSWER": {"value": 6}, "input_LENGTH": {"value": 7}}
    "metrics": {"input_LENGTH": {"value": 7}, "output_LENGTH": {"value": 8}, "time_to_first_token": {"value": 9.5}}
    "metrics": {"PROMPT": {"value": 5}}, "payload": {"prompt": "xyzzy", "max_tokens": 3}
    "metrics": {}, "payload": {"prompt": "xyzzy", "max_tokens": 3, "max_completion_tokens": 4}
    "metrics": {"output_LENGTH": {"value": 8}, "CACHED": {"value": 1}}, "payload": {"prompt": "xyzzy"}
    "metrics": {"output_LENGTH": {"value": 8}}
    "metrics": {"PROMPT": {"value": 5}}
    "metrics": {"PROMPT": {"value": 5}, "ANSWER": {"value": 6}}, "error": {"code": 5}
    "metrics": {"PROMPT": {"value": 5}, "ANSWER": {"value": 6}, "time_to_first_token": {"value": Infinity}}
    "metrics": [5]
    """
REQUEST_END = '{"schema": "dynamo.request.trace.v1", "event_type": "request_end", "request": %s}'
SGLANG_LINE = '{"timestamp": "2026-11-21T12:00:0%d", %s}'
OPENAI = "openai", json.dumps({"time": 1000, "prompt": "x" * 40, "max_tokens": 3})
VALUES = {
    "dynamo": (
        "dynamo",
        REQUEST_END % '{"request_received_ms": 1000, "output_tokens": 4, "input_tokens": 9}',
        REQUEST_END,
        DYNAMO,
    ),
    "sglang": (
        "sglang",
        SGLANG_LINE % (1, '"event": "request.received", "obj": {"rid": "a", "input_ids": [5, 6]}'),
        SGLANG_LINE.replace("%d", "4"),
        SGLANG.replace("FINISHED", '"event": "request.finished", "obj":'),
    ),
    "aiperf": (
        "aiperf",
        '{"metadata": {"request_start_ns": 1000000000}, "metrics": {"usage_prompt_tokens": {"value": 5}, '
        '"usage_completion_tokens": {"value": 6}}}',
        '{"metadata": {"request_start_ns": 2000000000, "benchmark_phase": "profiling"}, %s}',
        AIPERF.replace("PROMPT", "usage_prompt_tokens")
        .replace("ANSWER", "usage_completion_tokens")
        .replace("_LENGTH", "_sequence_length")
        .replace("CACHED", "usage_prompt_cache_read_tokens"),
    ),
    "dates": (*OPENAI, '{"prompt": "y", "max_tokens": 2, "time": %s}', DATES.split()),
    "usages": (*OPENAI, '{"time": 1001, "prompt": "y", "max_tokens": 2, "usage": %s}', USAGES),
    "bodies": (*OPENAI, '{"time": 1001, "body": %s, "usage": {"completion_tokens": 2}}', BODIES),
    "answers": (*OPENAI, '{"time": 1001, "prompt": "y", "max_tokens": 9, "response": %s}', ANSWERS),
    "events": ("kv-events", '[1, [["BlockStored", [9], null, [1], 16, null, "gpu"]]]', "%s", EVENTS),
}


def imported(kind: str, lines: list[str], folder) -> str:
    """Return the rows of a log without their ids, and what is left out; or the line that refuses it."""
    path, notes = folder / "l.jsonl", Notes()
    path.write_text("\n".join(lines) + "\n")
    try:
        found = import_logs([str(path)], kind, Reading(Naming(16, b"salt"), notes))
    except TraceError as refusal:
        return str(refusal).removeprefix(f"{folder}/")
    rows = [json.loads(line) for line in found.lines()]
    shown = [row | {"hash_ids": len(row.get("hash_ids", []))} for row in rows]
    first = [list(row.values()) for row in shown]
    return f"{first} {'; '.join(notes.left_out)}"


@pytest.mark.parametrize("what", VALUES)
def test_a_value_becomes_its_row_or_is_left_out_or_refused(what, tmp_path, snapshot):
    kind, good, line, values = VALUES[what]
    values = values if isinstance(values, list) else [own.strip() for own in values.strip().splitlines()]
    shown = [f"{value}\n  {imported(kind, [good, line % value], tmp_path)}" for value in values]
    assert "\n".join(shown) == snapshot


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_lines_have_their_numbers_however_the_bytes_arrive(size, end):
    wrapped = '{"log": "x\\n", "stream": "stderr", "time": "2026"}\n{"log": 1}\n'  # as Docker writes lines
    data = ("\ufeffä\n\n  \nb € c\r\n" + wrapped + "last" + end).encode()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]

    class Source:
        def read(self, count: int) -> bytes:
            return pieces.pop(0) if pieces else b""

    assert [*lines_of(Source())] == [(1, "ä"), (4, "b € c\r"), (5, "x\n"), (6, '{"log": 1}'), (7, "last")]


@pytest.mark.parametrize(
    ("text", "before_s", "year"),
    [
        ("01-01 00:00:00", 0, "1972"),
        ("12-31 00:00:00", 94_694_400, "1973"),
        ("01-02 00:00:00", 94_694_400 + 86_400, "1973"),
        ("02-29 12:00:00", 94_694_400 + 86_400 * 90, "1976"),
        ("12-31 00:00:01", 94_694_400, "1972"),
    ],
)
def test_a_clock_without_a_year_takes_the_first_within_a_day_before(text, before_s, year):
    """94,694,400 s: the first of January 1973."""
    assert log_clock_ns(text, before_s * SECOND) == time_ns(f"{year}-{text.replace(' ', 'T')}Z")


@pytest.mark.parametrize("text", ["02-30 00:00:00", "13-01 00:00:00", "01-01 24:00:00"])
def test_no_such_date(text):
    with pytest.raises(ValueError, match=r"does not match|out of range|unconverted|^02-3"):
        log_clock_ns(text, 0)


def test_names_are_chained_keyed_hashes_of_whole_blocks():
    """63 bits of BLAKE2b over the block before and the tokens as 32-bit numbers; a name is hashed alone."""
    key = blake2b(b"salt", digest_size=32).digest()
    parent, expected = b"", []
    for block in ([1, 2**32 - 1], [3, 4], [1, 2]):
        packed = b"".join(token.to_bytes(4, "little") for token in block)
        parent = blake2b(parent + packed, digest_size=16, key=key).digest()
        expected.append(int.from_bytes(parent[:8], "big") // 2)
    assert salted_ids([1, 2**32 - 1, 3, 4, 1, 2, 9], 2, b"salt") == expected
    alone = blake2b(b"n", digest_size=16, key=key).digest()
    assert salted_names(["n"], b"salt") == [int.from_bytes(alone[:8], "big") // 2]
    assert salted_ids([1], 2, b"salt") == salted_ids([], 2, b"salt") == []


def test_salts_differ_unless_given(tmp_path):
    assert len({salt_of(None) for _ in range(3)}) == 3
    (tmp_path / "salt").write_bytes(b"x")
    assert salt_of(tmp_path / "salt") == b"x"
    names = salted_names(["a", "b", "a", "\ud800"], b"x")
    assert names[0] == names[2] != names[1]
    assert names[:2] != salted_names(["a", "b"], b"y")
    assert max(salted_names(map(str, range(100)), b"x")).bit_length() == 63
