"""Bad traces: every bad file gives its one line, or a counted skip."""

import gzip
import json
import os
import re
import signal
import threading

import pytest
from kvcache_sim.base.errors import InputOutputError, KvsimError, TraceError, UsageError
from kvcache_sim.workload.readers import ReadSettings, read_report, read_trace

GOOD = b'{"timestamp": 0, "input_length": 1024, "output_length": 5, "hash_ids": [1, 2]}\n'


def row(**members: object) -> bytes:
    base = {"timestamp": 1, "input_length": 600, "output_length": 5, "hash_ids": [1, 9]}
    return (json.dumps({**base, **members}) + "\n").encode()


def text(**members: str) -> bytes:
    base = {"timestamp": "1", "input_length": "600", "output_length": "5", "hash_ids": "[1, 9]"}
    body = ", ".join(f'"{k}": {v}' for k, v in {**base, **members}.items())
    return ("{" + body + "}\n").encode()


#: name → (bytes, what the line must say, as a pattern). Row 1 is good; row 2 is the bad one.
BAD_ROWS = {
    "number instead of a row": (b"12\n", r":2:1: not JSON; got 12"),
    "null instead of a row": (b"null\n", r":2:1: not JSON; got null"),
    "array instead of a row": (b"[1, 2]\n", r":2:1: a JSON array"),
    "csv line": (b"1,2,3\n", r":2:1: a line of CSV"),
    "truncated": (GOOD[:28], r":2:29: unterminated JSON \(file may be truncated\)"),
    "truncated in a character": ('{"session_id": "é'.encode()[:-1], r":2:\d+: unterminated JSON"),
    "not UTF-8": (b'{"session_id": "\xe9", "timestamp": 0}\n', r":2:17: not UTF-8; got byte 0xe9"),
    "NUL": (b'{"timestamp":\x00 1}\n', r":2:14: "),
    "no input_length": (b'{"timestamp": 1, "output_length": 5}\n', r":2:1: input_length is missing"),
    "no output_length": (b'{"timestamp": 1, "input_length": 5}\n', r":2:1: output_length is missing"),
    "no timestamp": (b'{"input_length": 1, "output_length": 5}\n', r":2:1: timestamp is missing"),
    "too many ids": (row(hash_ids=[1, 2, 3]), r":2:\d+: too many block ids.*; got 3 ids for 600 tokens"),
    "ten million ids": (
        text(hash_ids="[" + ",".join(map(str, range(10_000_000))) + "]"),
        r":2:\d+: too many block ids.*; got 10000000 ids",
    ),
    "negative float id": (text(hash_ids="[-1.5]"), r":2:\d+: block id that is no integer; got -1.5"),
    "float id": (text(hash_ids="[1.0]"), r":2:\d+: block id that is no integer; got 1.0"),
    "bool id": (text(hash_ids="[true]"), r":2:\d+: not a block id; got true"),
    "id of another kind": (text(hash_ids='["a"]'), r":2:\d+: block ids of two kinds"),
    "ids no array": (text(hash_ids='"1,2"'), r":2:\d+: block ids are not an array"),
    "id twice": (text(hash_ids="[3, 3]"), r":2:\d+: a block id stands twice"),
    "length 0": (text(input_length="0"), r":2:\d+: input_length must be an integer ≥ 1; got 0"),
    "length -5": (text(input_length="-5"), r":2:\d+: input_length must be an integer ≥ 1; got -5"),
    "length 1e309": (text(input_length="1e309"), r":2:\d+: input_length must .*; got 1e309"),
    "length in quotes": (text(input_length='"12"'), r':2:\d+: input_length is no number; got "12";.*quotes'),
    "length 3.7": (text(input_length="3.7"), r":2:\d+: input_length must be an integer ≥ 1; got 3.7"),
    "length true": (text(input_length="true"), r":2:\d+: input_length is no number; got true"),
    "length null": (text(input_length="null"), r":2:\d+: input_length is no number; got null"),
    "huge length": (text(input_length="99999999999999999999"), r":2:\d+: input_length must"),
    "leading zero": (text(input_length="0600"), r":2:\d+: not a JSON number; got 0600"),
    "negative output": (text(output_length="-1"), r":2:\d+: output_length must be an integer ≥ 0; got -1"),
    "negative time": (text(timestamp="-0.5"), r":2:\d+: timestamp is negative; got -0.5"),
    "time NaN": (text(timestamp="NaN"), r":2:\d+: timestamp is no number; got NaN"),
    "time Infinity": (text(timestamp="Infinity"), r":2:\d+: timestamp is no number; got Infinity"),
    "time 1e309": (text(timestamp="1e309"), r":2:\d+: timestamp is out of range; got 1e309"),
    "time in quotes": (text(timestamp='"1"'), r":2:\d+: timestamp is no number"),
    "key twice": (
        b'{"timestamp": 1, "timestamp": 2, "input_length": 5, "output_length": 1}\n',
        r":2:18: member given twice",
    ),
    "key twice, once escaped": (
        b'{"timestamp": 1, "timest\\u0061mp": 2, "input_length": 5, "output_length": 1}\n',
        r":2:18: member given twice",
    ),
    "unknown key twice": (text(a="1", b="2").replace(b'"b"', b'"a"'), r":2:\d+: member given twice"),
    "half a surrogate": (text(session_id='"\\ud800"'), r":2:\d+: half of a surrogate pair"),
    "deep nesting": (text(a="[" * 500 + "]" * 500), r":2:\d+: JSON nested deeper than 128"),
    "text behind the row": (GOOD.strip() + b" {}\n", r":2:\d+: not JSON; got \{\}?.*one row a line"),
    "trailing comma": (b'{"timestamp": 1,}\n', r":2:17: not JSON; got \}"),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_bad_row_is_refused_with_its_position_and_can_be_skipped(tmp_path, name):
    bad, pattern = BAD_ROWS[name]
    path = tmp_path / "t.jsonl"
    path.write_bytes(GOOD + bad)
    with pytest.raises(TraceError) as refused:
        read_trace(path)
    line = str(refused.value)
    assert re.match(re.escape(str(path)) + pattern, line), line
    assert "\n" not in line
    assert len(line) < 400
    assert refused.value.exit_code == 3
    path.write_bytes(GOOD + bad.rstrip(b"\n") + b"\n" + row(timestamp=2, hash_ids=[1, 7]))
    report = read_report(path, settings=ReadSettings(on_bad_row="skip"))
    assert len(report.trace) == 2
    assert sum(report.skipped.values()) == 1
    assert len(report.problems) == 1
    assert report.trace.block_ids.tolist() == [0, 1, 0, 2]  # nothing of the bad row is left behind
    assert "1 rows skipped" in report.trace.warnings[0]


BAD_FILES = {
    "empty": (b"", "no requests"),
    "blank lines": (b"\n \n\t\r\n", "no requests"),
    "byte order mark alone": (b"\xef\xbb\xbf\n", "no requests"),
    "UTF-16": (GOOD.decode().encode("utf-16"), ":1:1: UTF-16"),
    "UTF-16 without mark": (GOOD.decode().encode("utf-16-le"), ":1:2: UTF-16 or binary"),
    "array": (b"[" + GOOD.strip() + b"]", ":1:1: a JSON array"),
    "unknown CSV": (b"a,b,c\n1,2,3\n", ":1:1: CSV of no known columns; got a,b,c"),
    "prose": (b"hello world\n", ":1:1: no known trace format"),
    "truncated gzip": (gzip.compress(GOOD * 2000)[:-40], "compressed data end early"),
    "only a gzip head": (gzip.compress(GOOD)[:8], "compressed data end early"),
    "truncated zstandard": (b"\x28\xb5\x2f\xfd\x04\x00\x99", "compressed data end early"),
    "zip": (b"PK\x03\x04rest", "a zip file: packed"),
    "only bad rows": (b'{"timestamp": 1}\n', ":1:1: input_length is missing"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_refused_in_one_line(tmp_path, name):
    data, said = BAD_FILES[name]
    path = tmp_path / "t.jsonl"
    path.write_bytes(data)
    with pytest.raises(TraceError) as refused:
        read_trace(path)
    assert said in str(refused.value)
    assert refused.value.exit_code == 3
    if name != "truncated gzip":  # read as far as it goes: see the next test
        with pytest.raises(TraceError):
            read_trace(path, settings=ReadSettings(on_bad_row="skip"))


def test_a_truncated_gzip_is_read_as_far_as_it_goes_and_counted(tmp_path):
    path = tmp_path / "t.jsonl.gz"
    rows = b"".join(row(timestamp=k, hash_ids=[1, k + 2]) for k in range(50_000))
    path.write_bytes(gzip.compress(rows)[:-2000])
    report = read_report(path, settings=ReadSettings(on_bad_row="skip"))
    assert 0 < len(report.trace) < 50_000
    assert report.skipped == {"truncated": 1}


def test_plain_text_named_gz_and_line_ends_of_windows(tmp_path):
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace(b"\n", b"\r\n") + b"\r\n" + row().replace(b", ", b" ,\t"))
    trace = read_trace(path)
    assert len(trace) == 2
    assert [w.split(": ", 1)[1] for w in trace.warnings] == [
        "1 blank lines",
        "the file starts with a byte order mark, which is skipped",
    ]


def test_concatenated_gzip_members_are_read_whole(tmp_path):
    path = tmp_path / "t.gz"
    path.write_bytes(gzip.compress(GOOD) + gzip.compress(row()))
    assert len(read_trace(path)) == 2


def test_a_missing_file_names_its_neighbours(tmp_path):
    (tmp_path / "conversation.jsonl").write_bytes(GOOD)
    with pytest.raises(
        UsageError, match=r"conversaton.jsonl: trace not found; did you mean .*conversation.jsonl\?"
    ):
        read_trace(tmp_path / "conversaton.jsonl")
    with pytest.raises(UsageError, match="not a file name"):
        read_trace("a\0b")


def test_a_directory_is_no_trace(tmp_path):
    with pytest.raises(InputOutputError, match="is a directory"):
        read_trace(tmp_path)


def test_endless_zeros_end_at_once():
    if not os.path.exists("/dev/zero"):
        pytest.skip("no /dev/zero on this system")
    with pytest.raises(TraceError, match="binary"):
        read_trace("/dev/zero")


def test_a_pipe_is_read_once_and_whole(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(GOOD + row()))
    writer.start()
    trace = read_trace(path)
    writer.join()
    assert len(trace) == 2


def test_a_signal_ends_the_wait_for_the_writer_of_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            read_trace(tmp_path / "pipe")
    finally:
        signal.signal(signal.SIGALRM, before)


HOSTILE = ["</script>", "‮rtl", "😀", "a\nb", "\x1b[31m", "x" * 10_000, "' OR 1=1 --", "../../etc"]


def test_hostile_names_come_through_and_messages_stay_one_line(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"".join(row(timestamp=k, session_id=s) for k, s in enumerate(HOSTILE)))
    assert read_trace(path).session_names == HOSTILE
    path.write_bytes(b'{"\\n\x1b[31m\\u202e": 1, "x": tru}\n' + GOOD)
    with pytest.raises(TraceError) as refused:
        read_trace(path)
    assert str(refused.value).isprintable()


def test_time_that_goes_back_is_refused_sorted_or_kept(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(row(timestamp=5) + row(timestamp=3, hash_ids=[4, 2]) + row(timestamp=3, hash_ids=[4, 8]))
    with pytest.raises(
        TraceError, match=r":2:15: time goes back; got 3000000 ns; expected at least 5000000 ns, as at"
    ):
        read_trace(path)
    ordered = read_trace(path, settings=ReadSettings(time_order="sort"))
    assert ordered.arrival_ns.tolist() == [3_000_000, 3_000_000, 5_000_000]
    assert ordered.block_ids.tolist() == [0, 1, 0, 2, 3, 4]
    assert ordered.id_names.tolist() == [4, 2, 8, 1, 9]
    kept = read_trace(path, settings=ReadSettings(time_order="keep"))
    assert kept.arrival_ns.tolist() == [5_000_000, 3_000_000, 3_000_000]
    assert "2 rows arrive before" in kept.warnings[0]


def test_what_is_odd_is_counted_and_named_once(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(
        row(hash_ids=[1, 2], extra=1)
        + row(hash_ids=[3, 2], extra=[1, {"a": None}], other="x")  # 2 behind another block
        + row(input_length=1024, hash_ids=[1, 2])  # 2 of another size
        + row(input_length=2048, hash_ids=[1])  # fewer ids than blocks
        + row(hash_ids=[])
        + row(output_length=0)
    )
    report = read_report(path, settings=ReadSettings(missing_ids="leave"))
    found = {f.kind: (f.count, f.line) for f in report.findings}
    assert found == {
        "fewer-ids": (1, 4),
        "no-ids": (1, 5),
        "no-output": (1, 6),
        "broken-chain": (1, 2),
        "id-size": (1, 3),
        "unknown-key": (2, 1),
        "equal-times": (6, 0),
    }
    assert any("extra, other" in w for w in report.trace.warnings)
    kept = read_trace(path, settings=ReadSettings(keep_unknown=True))
    assert kept.extra[:3] == ['"extra": 1', '"extra": [1, {"a": null}],"other": "x"', ""]


def test_a_wrong_block_size_is_named(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(row(input_length=100, hash_ids=list(range(7))))
    with pytest.raises(TraceError, match=r"at most 1 ids of 512 tokens; these ids fit blocks of 16 tokens"):
        read_trace(path, settings=ReadSettings(block_size=512))
    path.write_bytes(
        row(input_length=1300, hash_ids=[1, 2, 3]) + row(input_length=5000, hash_ids=list(range(10)))
    )
    trace = read_trace(path, settings=ReadSettings(block_size=16))
    assert "every row fits blocks of 512 tokens" in trace.warnings[0]


def test_seconds_read_as_milliseconds_are_suspected(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"".join(row(timestamp=k / 10) for k in range(200)))
    assert any("look like seconds" in w for w in read_trace(path).warnings)
    path.write_bytes(b"".join(row(timestamp=k * 10**8) for k in range(200)))
    assert any("look like us or ns" in w for w in read_trace(path).warnings)
    path.write_bytes(row(timestamp=1_700_000_000_000))
    assert any("look like dates" in w for w in read_trace(path).warnings)


@pytest.mark.parametrize(
    "settings",
    [
        {"block_size": 0},
        {"on_bad_row": "ignore"},
        {"time_order": "x"},
        {"missing_ids": ""},
        {"bytes_per_token": -1},
    ],
)
def test_settings_outside_their_range_are_refused_by_name(settings):
    with pytest.raises(UsageError, match=next(iter(settings))):
        ReadSettings(**settings)


def test_an_unknown_format_offers_the_known_ones(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(GOOD)
    with pytest.raises(KvsimError, match=r"unknown trace format; got 'mooncacke'.*did you mean mooncake"):
        read_trace(path, settings=ReadSettings(format="mooncacke"))
