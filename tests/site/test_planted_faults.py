"""The list of planted faults stays applicable: each of its texts occurs once in the file that it names."""

import pytest
from plant import ROOT, faults


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: fault.name)
def test_a_fault_applies(fault):
    assert (ROOT / fault.file).read_text().count(fault.old) == 1
    assert fault.old != fault.new
    assert (ROOT / fault.tests).exists()


def test_there_are_enough_and_each_has_its_own_name():
    names = [fault.name for fault in faults()]
    assert len(names) == len(set(names)) >= 17
