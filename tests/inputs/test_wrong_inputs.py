"""Wrong inputs end with their exit code and one line that names the position; new mutations are tried on
request, by number."""

import os

import pytest
from support import examples
from support.wrong_inputs import Wrong, ended, mutated, prepare, reported, suggested, table

CODES = {2, 3, 6, 7}
#: Mutations that are tried where the environment asks for new examples; a run with the same number tries the
#: same.
FIRST = 1_000_000 + int(os.environ.get("KVSIM_SEED", "0"))
NEW = range(FIRST, FIRST + examples.NEW_EXAMPLES)


@pytest.mark.parametrize("row", [*table("typed"), *table("mutated")], ids=lambda row: row.argv[:60])
def test_a_wrong_input_ends_with_its_code_and_line(tmp_path, row: Wrong):
    prepare(tmp_path)
    code, said = ended(row, tmp_path)
    assert (code, reported(said), suggested(said)) == (row.code, row.line, row.meant)
    assert len([one for one in said.splitlines() if not one.startswith("warning: ")]) == 1 or row.argv == ""
    assert code in CODES
    if row.argv.startswith(("simulate ", "sweep ", "calibrate ")):
        left = {path.name for path in tmp_path.iterdir()} - {"runs", row.file}
        assert left == {"run", "t.jsonl", "sub", "taken"}


def test_the_table_has_its_size_and_no_row_twice():
    typed, changed = table("typed"), table("mutated")
    assert len(typed) >= 970
    assert len(changed) == 100
    assert len({(row.argv, row.text) for row in (*typed, *changed)}) == len(typed) + len(changed)
    assert {row.code for row in typed} == CODES


@pytest.mark.parametrize("seed", NEW or range(20))
def test_a_mutation_runs_or_is_refused_in_one_line(tmp_path, seed):
    prepare(tmp_path)
    code, said = ended(mutated(seed), tmp_path)
    lines = [line for line in said.splitlines() if not line.startswith("warning: ")]
    assert code in {0, *CODES}, said
    assert len(lines) == (code != 0), said
