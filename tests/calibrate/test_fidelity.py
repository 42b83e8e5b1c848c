"""The table of errors by kind of source and load is made of the measured runs."""

import importlib
import sys

import pytest
from kvcache_sim.model.run_errors import measured_runs
from support.docs_data import read_table
from support.shared_files import ROOT

sys.path.append(str(ROOT / "benches"))
fidelity = importlib.import_module("fidelity")
ROWS = read_table("fidelity").rows


def test_the_table_is_that_of_the_measured_runs():
    assert fidelity.table_rows(measured_runs()) == ROWS
    assert fidelity.TABLE.read_text() == fidelity.file_text(ROWS)
    assert {row[0] for row in ROWS} == set(fidelity.whole_runs.GROUPS)


def test_a_group_is_simulated_again_from_the_given_data():
    """The quickest group of all: one run, two sources."""
    if not fidelity.whole_runs.SHARED.exists():
        pytest.skip("../shared is absent: runs are simulated from the traces that lie there")
    stated = [row for row in ROWS if row[0] == "sharegpt"]
    again = fidelity.table_rows(fidelity.simulated(("sharegpt",)), ("sharegpt",))
    assert fidelity.worse(again, stated) == []
    [own] = [row for row in again if row[1] == "composed set"]
    assert all(float(cell) <= 1 for cell in own[5:])


def test_every_stream_of_the_page_on_clocks_is_that_of_its_measured_run():
    names = {
        "`h100-llama-3-8b-tp1`, %": "composed set",
        "aiconfigurator, %": "kernel tables",
        "roofline, %": "roofline",
    }
    table = read_table("h100-clocks")
    runs = {(run.kind.source, run.run): run.values for run in measured_runs() if run.group == "streams"}
    for row in table.rows:
        for column, cell in zip(table.columns[1:], row[1:], strict=True):
            if cell != "none":
                pairs = [
                    runs[names[column], row[0].strip("`")][name]
                    for name in ("ttft_mean", "tpot_mean", "e2e_mean")
                ]
                stated = [float(each.replace("−", "-")) for each in cell.split(" / ")]
                assert all(
                    abs(100 * (ours / real - 1) - one) < 0.06
                    for (real, ours), one in zip(pairs, stated, strict=True)
                )
