"""Channels: presets against every measured transfer (kv_transfer.csv), and a file of one's own."""

import csv

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.channels import channel_names
from kvcache_sim.model.model_file import load_model
from support.docs_data import figures
from support.product.models import load_channel
from support.shared_files import shared

#: Presets by (words of the row's link, words of its note or direction).
PRESETS = (
    ("RDMA 8x CX7", "", "rdma-8x-cx7"),
    ("RDMA 4x200", "", "rdma-4x200-transfer-engine"),
    ("RDMA 8x400", "", "rdma-8x400-transfer-engine"),
    ("TCP on 4x200", "", "tcp-4x200"),
    ("TCP on 8x400", "", "tcp-8x400"),
    ("MI300X", "", "pcie5-mi300x"),
    ("PCIe Gen5 x16", "", "pcie5-x16"),
    ("PCIe Gen5 H20", "", "pcie5-x16"),
    ("GB300", "", "nvlink-c2c-gb300"),
    ("GH200", "host->device", "nvlink-c2c-gh200-h2d"),
    ("GH200", "device->host", "nvlink-c2c-gh200-d2h"),
    ("shared filesystem", "hot", "filesystem-cached"),
    ("shared filesystem", "cold", "nvme"),
)
#: Models of the rows whose bytes are not given, of 128 Ki tokens each; all layers are stored.
STORED = {
    "gpt-oss-20b": 24 * 2 * 8 * 64 * 2,
    "gpt-oss-120b": 36 * 2 * 8 * 64 * 2,
    "Llama-3.1-8B": load_model("llama-3.1-8b").kv_bytes_per_token,
    "Llama-3.1-70B": load_model("llama-3-70b").kv_bytes_per_token,
}


def preset_of(row: dict[str, str]) -> str | None:
    """The preset of a row's link; None where the row has no time and no rate."""
    if not row["time_ms"] and not row["gb_per_s"] and "ms enqueue" not in row["note"]:
        return None
    said = f"{row['direction']} {row['note']}"
    return next(name for link, words, name in PRESETS if link in row["link"] and words in said)


def error_percent(row: dict[str, str], preset: str) -> float:
    """Return by how much a preset's time of a row's transfer is above the measured one, in per cent."""
    channel = load_channel(preset)
    if row["note"].startswith("contiguous"):  # submissions that follow each other
        own = channel.bandwidth_bytes_per_s
        pieces = 8192 if "length 1:" in row["note"] else 512
        size = int(row["total_bytes"])
        busy_s = max(
            size / own + pieces * channel.piece_gap_ns / 1e9, pieces * channel.piece_overhead_ns / 1e9
        )
        return 100 * (
            max(busy_s, pieces * channel.piece_submit_ns / 1e9) * float(row["gb_per_s"]) * 1e9 / size - 1
        )
    if "ms enqueue" in row["note"]:  # "solo prefix-hit loads ~16 GB/s"
        size, pieces = int(row["total_bytes"]), int(row["pieces"])
        measured_s = size / 16e9
    elif not row["total_bytes"] and row["time_ms"]:
        model = row["note"].split()[0]
        measured_s, size, pieces = float(row["time_ms"]) / 1e3, STORED[model] * 128 * 1024, 1
    elif not row["total_bytes"]:
        return 100 * (float(row["gb_per_s"]) * 1e9 / channel.bandwidth_bytes_per_s - 1)
    elif "GB300" in row["link"]:  # the stated bytes are an eighth of rate times time
        measured_s = float(row["time_ms"]) / 1e3
        size, pieces = round(float(row["gb_per_s"]) * 1e9 * measured_s), 1
    else:
        pieces = int(row["pieces"] or 1)
        size = pieces * int(row["bytes_per_piece"]) if row["pieces"] else int(row["total_bytes"])
        measured_s = float(row["time_ms"]) / 1e3 if row["time_ms"] else size / float(row["gb_per_s"]) / 1e9
    return 100 * (channel.transfer_ns(size, pieces) / 1e9 / measured_s - 1)


#: The page's rows, by the words they begin with, and how many rows of the file each has.
PAGE = {
    "RDMA, eight cards, nine sizes": (9, ("rdma-8x-cx7",)),
    "Transfer Engine, 4 × 200 and 8 × 400 Gb/s": (
        2,
        ("rdma-4x200-transfer-engine", "rdma-8x400-transfer-engine"),
    ),
    "TCP on the same": (2, ("tcp-4x200", "tcp-8x400")),
    "MI300X, pieces of 4, 8, 32, 128, 512 KiB": (5, ("pcie5-mi300x",)),
    "H100, 8 KiB one after another, merged by 16, a lone load": (3, ("pcie5-x16",)),
    "H20, prefixes of 1,024 and 65,536 tokens": (2, ("pcie5-x16",)),
    "GB300, three sizes": (3, ("nvlink-c2c-gb300",)),
    "GH200, to and from the GPU": (2, ("nvlink-c2c-gh200-h2d", "nvlink-c2c-gh200-d2h")),
    "file system, read before: gpt-oss-20b, -120b, Llama-3.1-8B, -70B": (4, ("filesystem-cached",)),
    "file system, not read before: gpt-oss-20b, -120b": (2, ("nvme",)),
}


def in_file():
    with shared("calibration/kv_transfer.csv").open() as file:
        return [(row, preset_of(row)) for row in csv.DictReader(file)]


@pytest.mark.parametrize("first", PAGE)
def test_the_page_has_each_rows_error(first):
    count, presets = PAGE[first]
    on_h20 = first.startswith("H20")
    own = [row for row in in_file() if row[1] in presets and ("Gen5 H20" in row[0]["link"]) == on_h20]
    assert len(own) == count
    stated = figures("channels", first)
    assert stated[1] == [pytest.approx(error_percent(row, preset), abs=0.06) for row, preset in own]
    if first.startswith("MI300X"):
        by_pieces = [error_percent(row, "pcie5-mi300x-one-by-one") for row, _ in own]
        assert stated[2] == [pytest.approx(error, abs=0.06) for error in by_pieces]


def test_no_row_is_left_out():
    every = in_file()
    assert sum(preset is None for _, preset in every) == 1, "five NVMe drives: no time is given"
    assert len(every) == 1 + sum(count for count, _ in PAGE.values())


@pytest.mark.parametrize("name", channel_names())
def test_every_channel_has_a_source_and_rises_with_its_load(name):
    channel = load_channel(name)
    assert channel.source
    assert channel.transfer_ns(0) == 0
    times = [channel.transfer_ns(size, 100) for size in (1, 10**6, 10**8, 10**10)]
    assert times == sorted(times)
    assert channel.transfer_ns(10**6, 10**5) >= channel.transfer_ns(10**6, 1)


def own_channel(tmp_path, **changes):
    path = tmp_path / "mine.toml"
    values = {"bandwidth_bytes_per_s": 1, "latency_ns": 0, "piece_overhead_ns": 0} | changes
    path.write_text("".join(f"{key} = {value}\n" for key, value in values.items() if value is not None))
    return load_channel(str(path))


def test_a_channels_own_file_says_what_a_transfer_takes(tmp_path):
    channel = own_channel(tmp_path, piece_gap_ns=0)
    assert [channel.name, channel.source] == ["mine", str(tmp_path / "mine.toml")]
    assert channel.piece_submit_range_ns is None
    channel = own_channel(tmp_path, latency_ns=7, piece_gap_ns=3, piece_submit_ns=5)
    assert [channel.transfer_ns(size, 4) for size in (0, 1)] == [0, 7 + 4 * 5 + 10**9 + 4 * 3]


@pytest.mark.parametrize(
    ("key", "value"),
    [("bandwidth_bytes_per_s", 0), ("latency_ns", -1), ("piece_gap_ns", -1), ("latency_ns", None)],
)
def test_a_channels_file_without_a_figure_or_with_too_small_a_one_is_refused(tmp_path, key, value):
    with pytest.raises(UsageError, match=key):
        own_channel(tmp_path, **{key: value})
