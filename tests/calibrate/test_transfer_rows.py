"""Every row of kv_transfer.csv is on the page with the error of the preset that stands for its link."""

import pytest
from support.docs_data import figures
from support.shared_files import shared
from transfer_rows import error_percent, rows

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
    return list(rows(shared("calibration/kv_transfer.csv")))


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
