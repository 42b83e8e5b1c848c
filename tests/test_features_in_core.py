"""Features that the core serves, each drawn at random with whatever it may be combined with: the core and the Python
reference give the same ``summary.json``.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from support.feature_scenarios import DRAWS, command_line, different, results, summary


@pytest.mark.parametrize("feature", ["duplicates", "ranks"])
@examples(8)
@given(seed=st.integers(0, 2**32))
def test_the_core_and_python_report_the_same(feature, seed):
    arguments = command_line(DRAWS[feature](random.Random(seed)))
    with tempfile.TemporaryDirectory() as directory:
        core = summary(arguments, Path(directory))
        assume(not isinstance(core, str))  # a combination that is refused
        python = summary([*arguments, "--backend", "python"], Path(directory))
    assert (core["engine"]["name"], python["engine"]["name"]) == ("native", "python")
    assert not [*different(results(core), results(python))]
