"""Entry point of the ``kvsim`` command, outside the package that it starts.

The distribution ``kvcache-simulator`` of another project installs the same import name ``kvcache_sim``. Its
files replace kvsim's if it is installed later, and removing it removes them. The launcher checks the files
before it imports any of them, and prints one line with the problem and the command that repairs it.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

_OURS = '"""kvsim: '
_OTHER = "kvcache-simulator"
_NAME = "kvcache-sim"
#: Exit code of input/output errors (``kvsim help exit-codes``).
_EXIT_IO = 7


def main() -> None:
    """Run the command line, or print one line on missing or foreign files."""
    trouble = broken_installation()
    if trouble:
        print(trouble, file=sys.stderr)
        sys.exit(_EXIT_IO)
    if warning := shared_name():
        print(warning, file=sys.stderr)
    from kvcache_sim.__main__ import main as run

    run()


def broken_installation() -> str:
    """Return an error line if the package's files belong to another project or are missing; "" otherwise.

    Nothing of the package is imported. Cost: one small file is read.
    """
    spec = find_spec("kvcache_sim")
    search_paths = list(spec.submodule_search_locations or ()) if spec else []
    if spec is None or not search_paths:
        return f"kvsim: its package kvcache_sim is not installed; {_again()}"
    origin = Path(spec.origin) if spec.origin else Path(search_paths[0]) / "__init__.py"
    try:
        text = origin.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return f"{origin}: is gone, as after removing {_OTHER}, which shares its name; {_again()}"
    if text.startswith(_OURS):
        return ""
    return f"{origin}: is another project's, such as {_OTHER}'s; pip uninstall -y {_OTHER}; {_again()}"


def shared_name() -> str:
    """Return a warning if the other distribution is installed too and kvsim was installed later."""
    spec = find_spec("kvcache_sim")
    origin_dir = Path(spec.origin).parent.parent if spec and spec.origin else Path()
    if not any(origin_dir.glob(f"{_OTHER.replace('-', '_')}-*.dist-info")):
        return ""
    return f"warning: {_OTHER} shares files with kvsim; to keep kvsim: pip uninstall -y {_OTHER}; {_again()}"


def _again() -> str:
    """Return the command that reinstalls kvsim from its recorded source (PEP 610)."""
    import json
    import shlex
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    source = _NAME
    try:
        noted = json.loads(distribution(_NAME).read_text("direct_url.json") or "{}")
        origin_dir = Path(unquote(urlsplit(noted.get("url", "")).path))
        source = shlex.quote(str(origin_dir)) if origin_dir.is_absolute() and origin_dir.exists() else _NAME
    except (PackageNotFoundError, ValueError):
        pass
    return f"pip install --force-reinstall --no-deps {source}"
