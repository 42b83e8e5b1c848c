"""The list of planted faults stays applicable: each of its texts occurs once in the file that it names."""

import pytest
from fault_verdicts import CAUGHT, SURVIVED, Verdict, Verdicts, digest_of_tests, product_digest, table
from plant import ROOT, faults, part_of


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: fault.name)
def test_a_fault_applies(fault):
    assert (ROOT / fault.file).read_text().count(fault.old) == 1
    assert fault.old != fault.new
    assert (ROOT / fault.tests).exists()


def test_there_are_enough_and_each_has_its_own_name():
    names = [fault.name for fault in faults()]
    assert len(names) == len(set(names)) >= 17


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 200])
def test_parts_have_every_fault_once(parts):
    every = faults()
    names = [fault.name for k in range(1, parts + 1) for fault in part_of(every, (k, parts))]
    assert sorted(names) == sorted(fault.name for fault in every)


def test_a_verdict_holds_for_the_product_and_tests_that_it_was_given_for(tmp_path):
    first, other = (Verdicts(tmp_path / "deeper" / "verdicts.jsonl") for _ in range(2))
    first.add(Verdict("fault", SURVIVED, 1.0, "then", "tests/test_x.py"))
    other.add(Verdict("fault", CAUGHT, 2.0, "now", "tests/test_x.py"))  # as another part writes it
    assert first.find("fault", "then") is None
    assert first.find("fault", "now").verdict == CAUGHT
    assert first.find("other", "now") is None


def test_a_digest_is_of_the_product_and_of_all_that_a_test_file_imports(tmp_path):
    for name, text in {
        "python/a.py": "1",
        "rust/b.rs": "2",
        "tests/test_x.py": "import helper",
        "tests/helper.py": "from more import y",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "tests" / "more.py").write_text("y = 1")
    (tmp_path / "tests" / "apart.py").write_text("y = 1")

    def digests():
        return product_digest(tmp_path), digest_of_tests(tmp_path, "tests/test_x.py")

    before = digests()
    (tmp_path / "tests" / "apart.py").write_text("y = 2")
    assert digests() == before
    (tmp_path / "tests" / "more.py").write_text("y = 2")
    assert digests()[0] == before[0]
    assert digests()[1] != before[1]
    (tmp_path / "rust" / "b.rs").write_text("3")
    assert digests()[0] != before[0]


def test_the_table_marks_what_is_no_longer_caught():
    def verdicts(**of):
        return {name: Verdict(name, verdict, 0.0, "", "") for name, verdict in of.items()}

    text = table(["a", "b"], verdicts(a=SURVIVED, b=CAUGHT), verdicts(a=CAUGHT, gone=CAUGHT))
    assert [line.split() for line in text.splitlines()] == [
        ["before", "now", "fault"],
        ["caught", "SURVIVED", "a", "<-", "no", "longer", "caught"],
        ["-", "caught", "b"],
        ["caught", "-", "gone", "<-", "no", "longer", "caught"],
    ]
