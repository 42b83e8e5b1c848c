"""A setting passes few functions before it reaches the core (``benches/setting_path.py``)."""

import re
import subprocess
import sys
from pathlib import Path


def test_calls_of_a_setting():
    bench = Path(__file__).parents[2] / "benches" / "setting_path.py"
    said = subprocess.run([sys.executable, bench], capture_output=True, text=True, check=True).stdout
    calls, files, _ = map(int, re.findall(r"\d+", said))
    assert calls <= 1690
    assert files <= 44
