"""Every cell of the notebooks in ``docs/`` runs, and shows the figures that are kept in it."""

import json

import notebooks
import pytest


@pytest.mark.parametrize("path", notebooks.NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_run_and_their_outputs_are_kept(path):
    notebook = json.loads(path.read_text())
    assert notebook["nbformat"] == 4
    kept = [cell["outputs"] for cell in notebooks.code_cells(notebook)]
    again = notebooks.run_cells(notebook)
    assert any(kept)
    for before, after in zip(kept, again, strict=True):
        assert [output["output_type"] for output in before] == [output["output_type"] for output in after]
        for old, new in zip(before, after, strict=True):
            if old["output_type"] == "stream":  # pictures and tables are other libraries' to lay out
                assert old["text"] == new["text"]
