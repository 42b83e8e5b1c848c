"""Text files written whole or not at all."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable
from pathlib import Path

from kvcache_sim.errors import InputOutputError, OutputExistsError


def write_lines(path: Path, lines: Iterable[str], force: bool) -> None:
    """Write lines to a file, gzip where its name ends in .gz (bytes depend on the lines alone).

    Raises ``OutputExistsError`` without ``force`` where it exists, ``InputOutputError`` where it cannot be
    written; an error of the lines themselves passes through, and leaves nothing behind.
    """
    if path.exists() and not force:
        raise OutputExistsError("the file exists", where=str(path), hint="--force replaces it")
    part = path.with_name(f".{path.name[:100]}.{os.getpid()}.part")
    try:
        with open(part, "wb") as raw:
            if path.suffix == ".gz":
                with gzip.GzipFile("", "wb", 6, raw, mtime=0) as zipped:
                    zipped.writelines(line.encode() for line in lines)
            else:
                raw.writelines(line.encode() for line in lines)
        os.replace(part, path)
    except OSError as error:
        raise InputOutputError(
            "cannot be written", where=str(path), got=error.strerror or str(error)
        ) from None
    finally:
        part.unlink(missing_ok=True)
