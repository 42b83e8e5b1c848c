"""Values of imported logs one by one: lines, dates, counts, events and messages, each at the borders of its type."""

import json
from hashlib import blake2b
from zlib import crc32

import pytest
from kvcache_sim._core import TraceProblem
from kvcache_sim.base.errors import TraceError
from kvcache_sim.workload.chat_template import chat_prompt
from kvcache_sim.workload.imports import source as values
from kvcache_sim.workload.imports.kv_batch import KvBatch, KvEvent, batch_of
from kvcache_sim.workload.imports.messages import answer_of, counted, prompt_of, text_of
from kvcache_sim.workload.imports.naming import Imported, Naming, Notes, salt_of, salted_ids, salted_names
from kvcache_sim.workload.imports.write import ImportedLog, _text, kind_named, kind_of


class Pieces:
    """A source that gives its bytes a few at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        self.pieces = [data[at : at + size] for at in range(0, len(data), size)]

    def read(self, count: int) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_lines_have_their_numbers_however_the_bytes_arrive(size, end):
    text = "ä\n\n  \nb € c\r\n" + "last" + end
    assert [*values.lines_of(Pieces(text.encode(), size))] == [(1, "ä"), (4, "b € c\r"), (5, "last")]
    assert [*values.lines_of(Pieces(b"", size))] == []


@pytest.mark.parametrize(("data", "what", "line"), [(b"a\nb\xff", "not UTF-8", 2), (b"a\n\xe2\x82", "not UTF-8", 2), (b"a\n" + b"x" * 11, "a line too long", 2), (b"a\n" + b"x" * 10, "", 0)])  # fmt: skip
def test_bytes_that_are_no_text_and_endless_lines_are_refused(monkeypatch, data, what, line):
    monkeypatch.setattr(values, "LONGEST_LINE", 10)
    if not what:
        assert len([*values.lines_of(Pieces(data, 4))]) == 2
        return
    with pytest.raises(TraceProblem) as found:
        list(values.lines_of(Pieces(data, 4)))
    assert (found.value.args[0], found.value.args[3]) == (line, what)


def test_what_is_not_json_is_shown_from_where_it_stops():
    with pytest.raises(TraceProblem) as found:
        values.json_line(7, '{"a": 1, b' + "x" * 60)
    assert found.value.args[:5] == (7, 10, "json", "not JSON", "b" + "x" * 39)
    with pytest.raises(TraceProblem) as found:
        values.json_line(8, "[" * 100_000)
    assert found.value.args[3] == "JSON nested too deep"


SECOND = 10**9


@pytest.mark.parametrize(
    ("date", "ns"),
    [(0, 0), (99_999_999_999, 99_999_999_999 * SECOND), (10**11, 10**8 * SECOND), (1.5, 1_500_000_000), (99_999_999_999_999, 99_999_999_999_999 * 10**6),
     (10**14, 10**8 * SECOND), (99_999_999_999_999_999, 99_999_999_999_999_999_000), (10**17, 10**17), (10**19, None), (10**19 - 1, 10**19 - 1), (-1, None), (-0.5, None),
     (1_000_000_000_000.125, 1_000_000_000_000_125_000), ("5.5", 5_500_000_000), (" 1970-01-02 ", 86_400 * SECOND), ("1970-01-01T00:00:01.5+00:01", -58_500_000_000),
     ("1969-12-31T23:59:59Z", -SECOND), (True, None), ("x", None), (None, None), ([], None), (float("inf"), None)],
)  # fmt: skip
def test_a_date_is_in_the_unit_of_its_size(date, ns):
    assert values.time_ns(date) == ns


@pytest.mark.parametrize(("text", "before_s", "found"), [("01-01 00:00:00", 0, "1972"), ("12-31 00:00:00", 94_694_400, "1973"), ("01-02 00:00:00", 94_694_400 + 86_400, "1973"), ("02-29 12:00:00", 94_694_400 + 86_400 * 90, "1976"), ("12-31 00:00:01", 94_694_400, "1972")])  # fmt: skip
def test_a_clock_without_a_year_takes_the_first_within_a_day_before(text, before_s, found):
    """94,694,400 s: the first of January 1973."""
    assert values.log_clock_ns(text, before_s * SECOND) == values.time_ns(
        f"{found}-{text.replace(' ', 'T')}Z"
    )


@pytest.mark.parametrize("text", ["02-30 00:00:00", "13-01 00:00:00", "01-01 24:00:00"])
def test_no_such_date(text):
    with pytest.raises(ValueError, match=r"does not match|out of range|unconverted|^02-3"):
        values.log_clock_ns(text, 0)


@pytest.mark.parametrize(
    ("row", "count"),
    [({"a": 0}, 0), ({"a": 2**31 - 1}, 2**31 - 1), ({"a": 2**31}, "a is no count"), ({"a": -1}, "a is no count"), ({"a": 3.0}, 3), ({"a": 3.5}, "a is no count"), ({"a": True}, "a is no count"),
     ({"a": "3"}, "a is no count"), ({"a": None, "b": 4}, 4), ({"b": 4}, 4), ({"a": 1, "b": 4}, 1), ({}, None), (None, None), ([1], None)],
)  # fmt: skip
def test_a_count_is_a_whole_number_of_tokens(row, count):
    if not isinstance(count, str):
        assert values.count_of(5, row, "a", "b") == count
        assert type(values.count_of(5, row, "a", "b")) is type(count)
        return
    with pytest.raises(TraceProblem) as found:
        values.count_of(5, row, "a", "b")
    assert (found.value.args[0], found.value.args[3]) == (5, count)


@pytest.mark.parametrize(("tokens", "fits"), [([], True), ([0, 2**32 - 1], True), ([2**32], False), ([-1], False), ([True], False), ([1.0], False), ("ab", False), ((1, 2), False), (None, False)])  # fmt: skip
def test_tokens_are_numbers_below_2_to_32(tokens, fits):
    if fits:
        assert values.tokens_of(1, tokens) == tokens
        return
    with pytest.raises(TraceProblem):
        values.tokens_of(1, tokens)


def test_a_time_in_ms_has_microseconds():
    assert [values.ms_of(ns) for ns in (0, 499, 501, 1_234_567, -1_500_000)] == [0.0, 0.0, 0.001, 1.235, -1.5]


# -- KV events

STORED = {"type": "BlockStored", "block_hashes": [1, b"\x0a\xff"], "block_size": 16}


@pytest.mark.parametrize(
    ("given", "found"),
    [([1.5, []], KvBatch(1_500_000_000, ())), ([0, [], 3], KvBatch(0, (), 3)), ([0, [], None], KvBatch(0, ())), ([0, [], "x"], KvBatch(0, ())), ({"ts": 1e11 - 1, "events": [], "rank": 2}, KvBatch((10**11 - 1) * SECOND, (), 2)),
     ({"ts": 2, "events": [], "data_parallel_rank": 4}, KvBatch(2 * SECOND, (), 4)), ({"ts": 2, "events": [], "rank": 1, "data_parallel_rank": 4}, KvBatch(2 * SECOND, (), 1)), ([1.0000004, []], KvBatch(SECOND, ())),
     ([0, [STORED]], KvBatch(0, (KvEvent("stored", (1, "0aff"), None, 16),))), ([0, [STORED | {"parent_block_hash": b"\x01", "medium": "cpu", "group_idx": 2}]], KvBatch(0, (KvEvent("stored", (1, "0aff"), "01", 16, "CPU", 2),))),
     ([0, [STORED | {"parent_block_hash": 0, "medium": None, "group_idx": None, "block_size": 1 << 20}]], KvBatch(0, (KvEvent("stored", (1, "0aff"), 0, 1 << 20),))), ([0, [STORED | {"group_idx": "x", "medium": ""}]], KvBatch(0, (KvEvent("stored", (1, "0aff"), None, 16),))),
     ([0, [["BlockStored", ["a"], 5, [1, 2], 2, None, "cpu"], ["BlockRemoved", [7], "disk"], ["BlockRemoved", []], ["AllBlocksCleared"]]],
      KvBatch(0, (KvEvent("stored", ("a",), 5, 2, "CPU"), KvEvent("removed", (7,), None, 0, "DISK"), KvEvent("removed"), KvEvent("cleared")))),
     ([0, [["Else"], {"type": 3}, {}, [], 5, {"type": "AllBlocksCleared"}]], KvBatch(0, (KvEvent("cleared"),), 0, 5)),
     ([0, [{"type": "BlockRemoved", "block_hashes": [1], "block_size": "x"}]], KvBatch(0, (KvEvent("removed", (1,)),)))],
)  # fmt: skip
def test_a_batch_of_events_in_each_of_its_forms(given, found):
    assert batch_of(given) == found


@pytest.mark.parametrize(
    ("given", "line"),
    [(5, "neither"), ([], "neither"), ([1], "neither"), ([1, {}], "neither"), ({}, "neither"), ({"ts": 1}, "neither"), ([True, []], "the date True"), (["1", []], "the date '1'"), ([-1, []], "the date -1"), ([1e11, []], "the date 1"), ([float("nan"), []], "the date nan"),
     ([0, [STORED | {"block_hashes": 5}]], "block_hashes is no list"), ([0, [STORED | {"block_size": 0}]], "block_size 0"), ([0, [STORED | {"block_size": (1 << 20) + 1}]], "block_size 1048577"), ([0, [STORED | {"block_size": 1.0}]], "block_size 1.0"),
     ([0, [{"type": "BlockStored", "block_hashes": []}]], "block_size 0"), ([0, [STORED | {"block_hashes": [True]}]], "the block hash True"), ([0, [STORED | {"parent_block_hash": [1]}]], r"the block hash \[1\]"), ([0, [STORED | {"block_hashes": [1.5]}]], "the block hash 1.5")],
)  # fmt: skip
def test_what_is_no_batch_is_refused(given, line):
    with pytest.raises(ValueError, match=line):
        batch_of(given)


# -- messages


@pytest.mark.parametrize(
    ("body", "prompt"),
    [({}, None), ({"prompt": None}, None), ({"prompt": ""}, ""), ({"prompt": "x"}, "x"), ({"prompt": ["x"]}, "x"), ({"prompt": [[1, 2]]}, [1, 2]), ({"prompt": [1, 2]}, [1, 2]), ({"prompt": [5]}, [5]), ({"prompt": []}, []),
     ({"prompt": ["x", "y"]}, TraceProblem), ({"prompt": {}}, TraceProblem), ({"messages": []}, TraceProblem), ({"messages": "x", "prompt": "x"}, TraceProblem), ({"messages": None, "prompt": "x"}, "x"), ({"messages": [{"content": "x"}]}, TraceProblem),
     ({"messages": [{"role": "user", "content": "x"}, {"role": "tool"}], "prompt": "y"}, chat_prompt([("user", "x"), ("tool", "")]))],
)  # fmt: skip
def test_the_prompt_of_a_body(body, prompt):
    if prompt is TraceProblem:
        with pytest.raises(TraceProblem):
            prompt_of(3, body)
        return
    assert prompt_of(3, body) == prompt


@pytest.mark.parametrize(("content", "text"), [("x", "x"), (None, ""), (5, ""), ({"text": "x"}, ""), ([{"text": "a"}, {"image": "b"}, "c", {"text": 5}, {"text": "d"}], "ad"), ([], "")])  # fmt: skip
def test_the_text_of_a_message_is_that_of_its_text_parts(content, text):
    assert text_of(content) == text
    assert answer_of({"choices": [{"message": {"content": content}}]}) == (None if content is None else text)


@pytest.mark.parametrize(
    ("response", "answer"),
    [(None, None), ({}, None), ({"choices": []}, None), ({"choices": {}}, None), ({"choices": [{"text": "a"}, {"text": "b"}]}, "a"), ({"choices": [{"text": "", "message": {"content": "b"}}]}, ""), ({"choices": [{"delta": {"content": "c"}}]}, "c"),
     ({"choices": [{"text": None, "message": {"content": "b"}, "delta": {"content": "c"}}]}, "b"), ({"choices": [{}]}, None), ({"choices": [5]}, None)],
)  # fmt: skip
def test_the_answer_is_the_first_choice(response, answer):
    assert answer_of(response) == answer


@pytest.mark.parametrize(
    ("usage", "found"),
    [(None, (None, None, None)), ({"prompt_tokens": 5, "completion_tokens": 6, "cached_tokens": 2}, (5, 6, 2)), ({"input_tokens": 5, "output_tokens": 0}, (5, 0, None)), ({"prompt_tokens": 1, "input_tokens": 2, "completion_tokens": 3, "output_tokens": 4}, (1, 3, None)),
     ({"prompt_tokens_details": {"cached_tokens": 7}, "cached_tokens": 8}, (None, None, 7)), ({"input_tokens_details": {"x": 1}, "cached_tokens": 8}, (None, None, None)), ({"input_tokens_details": {}, "cached_tokens": 8}, (None, None, 8))],
)  # fmt: skip
def test_the_counts_of_a_server(usage, found):
    assert counted(2, usage) == found


# -- rows and notes


def test_notes_count_each_reason_and_name_its_first_line():
    notes = Notes()
    for line, reason in ((9, "b"), (4, "a"), (12, "b"), *[(20, "c")] * 1234):
        notes.leave_out(line, reason)
    for text in ("y", "x", "y"):
        notes.remark(text)
    assert notes.lines("f") == [
        "f:9: 2 left out: b",
        "f:4: 1 left out: a",
        "f:20: 1,234 left out: c",
        "f: y",
        "f: x",
    ]


@pytest.mark.parametrize(
    ("row", "members"),
    [(Imported(0, 5, 6, []), {}), (Imported(0, 5, 6, [3, 1], 4, "s", {"a": 2.0, "b": 2.5}), {"hash_ids": [3, 1], "named_length": 4, "session_id": "s", "a": 2, "b": 2.5})],
)  # fmt: skip
def test_a_row_has_the_members_that_are_known(row, members):
    found = json.loads('{"timestamp": 0' + _text(row))
    assert found == {"timestamp": 0, "input_length": 5, "output_length": 6} | members
    assert all(type(found[name]) is type(value) for name, value in members.items())


def test_rows_come_by_time_then_in_the_order_of_the_log():
    log = ImportedLog(kind_named("vllm"), [(5_000_000, 0, "a"), (3_000_000, 2, "c"), (3_000_000, 1, "b")])
    assert [*log.lines()] == ['{"timestamp": 0b\n', '{"timestamp": 0c\n', '{"timestamp": 2a\n']
    assert len(log) == 3
    assert [*ImportedLog(kind_named("vllm"), []).lines()] == []


@pytest.mark.parametrize(
    ("head", "kind"),
    [(b'\xef\xbb\xbf \n["BlockStored"]', "kv-events"), (b'{"input_length": 5, "output_length": 1, "timestamp": 0, "hash_ids": [1]}', None), (b" \n", "an empty log"), (b"\xef\xbb\xbf", "an empty log"), (b"x" * 70 + b"\ny", "no known kind of log.*got " + "x" * 60 + ";")],
)  # fmt: skip
def test_the_first_bytes_of_a_file_decide(head, kind):
    if kind is None or kind == "kv-events":
        found = kind_of(head, "f")
        assert (found and found.name) == kind
        return
    with pytest.raises(TraceError, match=kind):
        kind_of(head, "f")


def test_salts_and_names(tmp_path):
    assert len({salt_of(None) for _ in range(3)}) == 3
    assert len(salt_of(None)) == 32
    (tmp_path / "salt").write_bytes(b"x")
    assert salt_of(tmp_path / "salt") == b"x"
    names = salted_names(["a", "b", "a", "\ud800"], b"x")
    assert names[0] == names[2] != names[1]
    assert all(0 <= name < 1 << 63 for name in names)
    assert max(salted_names(map(str, range(100)), b"x")).bit_length() == 63
    assert names[:2] != salted_names(["a", "b"], b"y")


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


@pytest.mark.parametrize(("bytes_per_token", "pieces"), [(None, ["abcd", "efgh", "ij"]), (3, ["abc", "def", "ghi", "j"]), (10, ["abcdefghij"])])  # fmt: skip
def test_bytes_are_tokens_piece_by_piece(bytes_per_token, pieces):
    naming = Naming(4, b"s", bytes_per_token=bytes_per_token)
    assert naming.tokens("") == naming.tokens(None) == []
    assert naming.tokens([7, 8]) == [7, 8]
    assert not naming.met_text
    assert naming.tokens("abcdefghij") == [crc32(piece.encode()) for piece in pieces]
    assert naming.met_text
    assert naming.tokens("") == []
    assert naming.met_text
    assert naming.session("") == ""
    assert naming.session("x") == f"s{salted_names(['x'], b's')[0]:x}"
