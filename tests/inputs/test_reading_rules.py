"""Formats by a trace's first bytes, and what is shown and bounded while a long one is read, by hand."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim._core import TraceProblem
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli import reading
from kvcache_sim.cli.reading import (
    LEAST_BYTES,
    OverMemoryError,
    Reading,
    parse_memory,
    peak_bytes,
    sample_ids,
)
from kvcache_sim.workload.readers import json_stream, stream
from kvcache_sim.workload.readers.chained_text import TextRows, lengths_said
from kvcache_sim.workload.readers.findings import odd_span
from kvcache_sim.workload.readers.format import SIGNS, TraceFormat, first_row, header
from kvcache_sim.workload.readers.json_rows import guessed_block
from kvcache_sim.workload.readers.settings import ReadSettings
from kvcache_sim.workload.trace import OPEN_LOOP
from support.examples import examples


@pytest.mark.parametrize(
    ("head", "signs"),
    [
        (b' [{"conversations": [{"value": "a"}]}]', "sharegpt"),
        (b'{"conversations": [{"value": 1', "sharegpt"),
        (b'x "conversations" "value"', ""),
        (b'[{"conversations": [{"text": "a"}]}]', ""),
        (b'[{"other": [{"value": "a"}]}]', ""),
        (b'{"session_id": 1, "turns": [{"messages": [', "aiperf-dag"),
        (b'{"session_id": 1, "turns": []}\n{"spawns": 1}', "aiperf-dag"),
        (b'{"session_id": 1, "turns": [], "text": 1}\n{"forks": 1}', "aiperf-dag aiperf-multi-turn"),
        (b'{"session_id": 1, "orchestrator": 1}', "aiperf-dag"),
        (b'{"session_id": 1, "turns": []}', ""),
        (b'{"session_id": 1, "forks": []}', ""),
        (b'{"turns": [], "forks": 1, "orchestrator": 1}', ""),
        (b'{"turns": [{"texts": [1]}]}', "aiperf-multi-turn"),
        (b'{"texts": [1]}', ""),
        (b'\n{"messages": [{"role": "user"}]}', "openai"),
        (b'[{"messages": [{"role": ', "openai"),
        (b'x {"messages": [{"role": ', ""),
        (b'{"messages": []}', ""),
        (b'{"chat_id": 1, "parent_chat_id": -1}', "bailian"),
        (b'{"chat_id": 1}', ""),
        (b'{"input_bytes": 1, "output_bytes": 2', "lmcache"),
        (b'{"input_bytes": 1}', ""),
        (b'{"session": 1, "rows": [', "weka"),
        (b'{"rows": [1]}', ""),
        (b'{"requests": [], "hash_id_scope": 1}', "aiperf-weka"),
        (b'{"requests": []}', ""),
        (b'{"hash_id_scope": 1}', ""),
        (b'{"request_id": 1, "hash_ids": [], "wait_for": 1}', "dynamo-agentic mooncake"),
        (b'{"request_id": 1, "hash_ids": []}\n{"branches": 1}', "dynamo-agentic mooncake"),
        (b'{"request_id": 1, "hash_ids": []}', "mooncake"),
        (b'{"request_id": 1, "tool_events": 1}', ""),
        (b'{"hash_ids": [], "wait_for": 1}', "mooncake"),
        (b'\xef\xbb\xbf \n{"input_length": 4}\n', "mooncake"),
        (b'{"output_length": 4}', "mooncake"),
        (b'[{"input_length": 4}]', ""),
        (b'TIMESTAMP,"ContextTokens", GeneratedTokens,more\r\n1', "azure"),
        (b"TIMESTAMP,ContextTokens\n", ""),
        (b"\xef\xbb\xbfTimestamp,Request tokens,Response tokens", "burstgpt"),
        (b"arrived_at,num_prefill_tokens,num_decode_tokens", "vidur"),
        (b"", ""),
    ],
)
def test_the_signs_of_a_files_first_bytes(head, signs):
    assert [name for name, sign in SIGNS.items() if sign(head)] == signs.split()


def test_the_first_row_is_whole_or_the_names_that_are_there():
    assert first_row(b'\xef\xbb\xbf\n {"a": {"b": [1]}}\n{"c"') == {"a": {"b": [1]}}
    assert first_row(b'{"a b": 1, "c" : "x"}, "d-e": 1, "f') == {"a b": None, "c": None}
    assert first_row(b"[1]") is first_row(b'"a"') is None
    assert header(b'\xef\xbb\xbfa, "b c" ,d\r\ne,f') == ["a", "b c", "d"]
    given, open_size = ReadSettings(block_size=7), ReadSettings()
    own = TraceFormat("x", "", bool, len, 9)
    asked = TraceFormat("x", "", bool, len, 9, lambda head, settings: len(head))
    assert [form.block_of(b"abc", chosen) for form in (own, asked) for chosen in (given, open_size)] == [7, 9, 7, 3]  # fmt: skip


def test_memory_is_bounded_from_half_a_gibibyte(monkeypatch):
    assert (parse_memory(""), parse_memory("512MiB"), parse_memory("2GiB")) == (0, LEAST_BYTES, 2 << 30)
    with pytest.raises(UsageError, match="too little memory"):
        parse_memory("511MiB")
    assert sample_ids(1300) == 4
    monkeypatch.setattr(reading, "resource", SimpleNamespace(RUSAGE_SELF=0, getrusage=lambda who: SimpleNamespace(ru_maxrss=3)))  # fmt: skip
    for platform, size in (("linux", 3072), ("darwin", 3)):
        monkeypatch.setattr(reading, "sys", SimpleNamespace(platform=platform))
        assert peak_bytes() == size


@pytest.mark.parametrize("length", range(26))
def test_texts_have_an_id_for_each_full_block(length):
    """Blocks of 4 tokens of 2 bytes: a prompt's id is of all its text up to the block's end."""
    rows = TextRows(ReadSettings(bytes_per_token=2), 4)
    text = b"abcdefgh" * 4
    rows.add(text[:length], 3, 0, 0)
    rows.add(b"-" + text[:length], 3, 0, 1)
    rows.add(text[:24], 3, 0, 2)
    assert rows.offsets.tolist() == [
        0,
        length // 8,
        length // 8 + (length + 1) // 8,
        3 + length // 8 + (length + 1) // 8,
    ]
    assert rows.ids[-3:].tolist()[: length // 8] == rows.ids[: length // 8].tolist()
    assert len(rows.dense) == (length + 1) // 8 + 3
    assert rows.inputs.tolist() == [max(1, (length + 1) // 2), length // 2 + 1, 12]
    assert rows.think.tolist() == [OPEN_LOOP, 0, 0]
    said = lengths_said(ReadSettings(bytes_per_token=length or None), 4)
    assert ("(a tokenizer.json) counts them" in said) == (length == 0)


@pytest.mark.parametrize(("ids", "distinct", "rate"), [(0, 99, None), (10, 10, None), (10, 11, 2), (10, 20, 4), (10, 39, 4), (10, 40, 8)])  # fmt: skip
def test_more_ids_than_allowed_are_halved_until_they_fit(ids, distinct, rate):
    own = Reading("-", ids=ids, rate=0.5)
    if rate is None:
        return own.check_ids(distinct)
    with pytest.raises(OverMemoryError) as over:
        own(0, 0, distinct)
    assert over.value.rate == 0.5 / rate
    return None


@pytest.mark.parametrize(
    ("read", "distinct", "peak", "rate"),
    [(500, 1000, 800, None), (500, 1000, 801, 1 / 650), (0, 0, 801, 1 / 4), (0, 1000, 801, 1 / 3334), (4000, 10, 801, 1 / 7), (8000, 1, 801, 1 / 2)],
)  # fmt: skip
def test_a_sample_that_fits_follows_from_the_part_read(tmp_path, monkeypatch, read, distinct, peak, rate):
    """A sample's ids in 1,000 bytes are 3; past the file's size it is compressed, to an eighth."""
    (tmp_path / "t").write_bytes(bytes(1000))
    monkeypatch.setattr(reading, "peak_bytes", lambda: peak)
    own = Reading(str(tmp_path / "t"), memory=1000)
    if rate is None:
        return own(read, 0, distinct)
    with pytest.raises(OverMemoryError) as over:
        own(read, 0, distinct)
    part = (read / 1000 if read <= 1000 else min(1.0, read / 8000)) or 0.1
    assert over.value.rate == 1 / max(2, -(-max(1, distinct) // (3 * part)))
    return None


@pytest.mark.parametrize(("live", "every", "end"), [(True, 0.5, "\r"), (False, 10.0, "\n")])
def test_progress_is_shown_every_so_often(tmp_path, monkeypatch, capsys, live, every, end):
    (tmp_path / "t").write_bytes(bytes(4000))
    monkeypatch.setattr("sys.stderr.isatty", lambda: live)
    clock = {"s": 100.0}
    monkeypatch.setattr(reading, "time", SimpleNamespace(monotonic=lambda: clock["s"]))
    own = Reading(str(tmp_path / "t"), start=100.0)
    own.done()
    lines = []
    for at_s in (every - 0.01, every, 1.9 * every, 2 * every):
        clock["s"] = 100 + at_s
        own(1000, 8_000_000, 1)
        lines.append(capsys.readouterr().err)
    left = f"read 1000 B, 25%, {3 * every:,.0f} s left, 8 M references, {8 / every:,.1f} M/s".ljust(79)
    assert lines[:3] == ["", left + end, ""]
    assert lines[3].endswith(end)
    own.done()
    assert capsys.readouterr().err == (" " * 79 + "\r" if live else "")
    assert Reading("-")._line(3, 0, (0.0, 2.0)).strip() == "read 3 B, 0 M references, 0.0 M/s"


_YEAR_S = 31_557_600


@pytest.mark.parametrize(
    ("count", "first_s", "last_s", "found"),
    [
        (0, 9 * _YEAR_S, 0, []),
        (1, 5, 5, []),
        (2, 5, 5, [("equal-times", 2, "all 2 requests arrive")]),
        (99, 5, 5.001, []),
        (101, 5, 6, []),
        (101, 5, 5.8, [("units", 101, "125 requests/s")]),
        (100, 0, 99 * 3599, []),
        (100, 0, 99 * 3700, [("units", 100, "one request in 3,700 s")]),
        (3, _YEAR_S, 2 * _YEAR_S, []),
        (3, 1.5 * _YEAR_S, 2 * _YEAR_S, [("units", 1, "arrives 1.5 years after time 0")]),
        (200, 2 * _YEAR_S, 2 * _YEAR_S, [("equal-times", 200, "all 200"), ("units", 1, "arrives 2.0 years")]),
    ],
)
def test_arrivals_that_look_like_another_unit(count, first_s, last_s, found):
    said = odd_span(count, int(first_s * 10**9), int(last_s * 10**9))
    assert [(one.kind, one.count, one.line) for one in said] == [(*own[:2], 0) for own in found]
    assert all(own[2] in one.text for one, own in zip(said, found, strict=True))


@pytest.mark.parametrize("is_guessed", [True, False])
def test_a_guessed_block_size_is_noted_behind_what_the_reader_found(is_guessed):
    raw = {"findings": [("a", 2, 3, "noted"), ("b", 2, 0, "of all")]}
    guess = "t: ids and lengths of the first rows fit blocks of 16 tokens alone: they are taken as such"
    notes = ("t:3: noted", "t: of all")
    assert stream._notes("t", raw, (is_guessed, 16, 7)) == ((*notes, guess) if is_guessed else notes)
    assert guessed_block(16, 7)[:3] == ("block-size", 7, 0)


class Pieces:
    """A file whose reads end after so many bytes each, whatever is asked for."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self.data, self.sizes, self.asked = data, sizes, []

    def read(self, want: int) -> bytes:
        self.asked.append(want)
        size = self.sizes[(len(self.asked) - 1) % len(self.sizes)]
        piece, self.data = self.data[:size], self.data[size:]
        return piece


@examples(60)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.sampled_from(("", "[", "\ufeff[\n")))
def test_elements_of_a_json_file_are_read_whole_however_it_is_cut(sizes, head):
    """A number may be cut at the end of a piece; each element has the line of its first sign."""
    written = [123, "a\nä€", {"b": [1, 2]}, True, None, -67]
    parts = ["123,\n", '"a\\nä€"\n', '\n{"b": [1,\n2]},', "true\t", "null\r\n", "-67"]
    source = Pieces((head + "".join(parts)).encode(), sizes)
    first = 1 + head.count("\n")
    lines = [first, first + 1, first + 3, first + 4, first + 4, first + 5]
    assert list(json_stream.objects(source)) == list(zip(lines, written, strict=True))
    early = Pieces(b"1 2 " * 50, [8])
    found = json_stream.objects(early)
    assert [next(found) for _ in range(5)] == [(1, 1 + n % 2) for n in range(5)]
    assert early.asked == [json_stream._CHUNK] * 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[1,\n2, {"a": 1', (2, "unterminated JSON (file may be truncated)")),
        ('1\n "ab', (2, "unterminated JSON (file may be truncated)")),
        ("1\n\n x 2", (3, "not JSON")),
        ("[NaN]", (1, "not JSON")),
        ('1 "' + "a" * 30, (1, "an element too long")),
        ('[1] {"a":' + "[" * 100_000, (1, "JSON nested too deep")),
        (b"1\n23\xff", (2, "not UTF-8")),
    ],
)
def test_json_that_cannot_be_read_names_its_line(monkeypatch, text, problem):
    monkeypatch.setattr(json_stream, "LONGEST_ELEMENT", 20 if "too long" in problem[1] else 1 << 20)
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(TraceProblem) as raised:
        list(json_stream.objects(Pieces(data, [4] if len(data) < 99 else [1 << 20])))
    assert raised.value.args[0] == problem[0]
    assert problem[1] in raised.value.args
