"""Install the wheel without Rust and try it: ``python tests/clean_install dist``.

``make check-wheel`` builds ``dist`` first. Needs the package index, for the dependencies; ends with 1 and one line
where something does not hold.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import first_minutes
import lower_bounds
import shared_name
import wheel_file
from environment import Failed

STEPS: dict[str, Callable[[Path, str], str]] = {
    "wheel and sdist": wheel_file.check,
    "first minutes": first_minutes.check,
    "lower bounds": lower_bounds.check,
    "kvcache-simulator": shared_name.check,
}


def newest_python() -> str:
    """Return the newest interpreter here: with it come the newest dependencies."""
    for minor in range(19, sys.version_info.minor, -1):
        found = shutil.which(f"python3.{minor}")
        if (
            found
            and not subprocess.run([found, "-c", "import venv"], capture_output=True, check=False).returncode
        ):
            return found
    return sys.executable


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dist", type=Path, help="folder with one wheel and one sdist")
    parser.add_argument(
        "--python", help="the interpreter that installs the wheel; default: this one and the newest"
    )
    parser.add_argument("--only", choices=STEPS, help="one step alone")
    given = parser.parse_args()
    for name, step in STEPS.items():
        if given.only in (None, name):
            try:
                python = given.python or (newest_python() if step is first_minutes.check else sys.executable)
                print(f"{name}: {step(given.dist.resolve(), python)}", flush=True)
            except Failed as failed:
                print(f"{name}: FAILED: {failed}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
