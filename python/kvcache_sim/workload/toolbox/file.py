"""Text files written whole or not at all."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path

from kvcache_sim.output import new_file


def write_lines(path: Path, lines: Iterable[str], force: bool) -> None:
    """Write lines to a file, gzip where its name ends in .gz (bytes depend on the lines alone).

    Raises as ``new_file`` does; an error of the lines themselves passes through, and leaves nothing behind.
    """
    with new_file(path, force) as raw:
        if path.suffix == ".gz":
            with gzip.GzipFile("", "wb", 6, raw, mtime=0) as zipped:
                zipped.writelines(line.encode() for line in lines)
        else:
            raw.writelines(line.encode() for line in lines)
