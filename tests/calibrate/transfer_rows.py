"""Every row of kv_transfer.csv compared with the preset for its link: the preset's error in %."""

import csv
from collections.abc import Iterator
from pathlib import Path

from kvcache_sim.model.channels import load_channel
from kvcache_sim.model.model_file import load_model

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
    """Return the preset of a row's link; None where the row has no time and no rate."""
    if not row["time_ms"] and not row["gb_per_s"] and "ms enqueue" not in row["note"]:
        return None
    said = f"{row['direction']} {row['note']}"
    return next(name for link, words, name in PRESETS if link in row["link"] and words in said)


def rows(path: Path) -> Iterator[tuple[dict[str, str], str | None]]:
    """Yield every row with its preset's name."""
    with path.open() as file:
        for row in csv.DictReader(file):
            yield row, preset_of(row)


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
