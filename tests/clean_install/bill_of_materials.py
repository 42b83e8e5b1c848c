"""Take the folder of the build out of a wheel's list of crates: ``bill_of_materials.py dist``.

maturin writes the list (CycloneDX) with the absolute paths of the workspace's crates; it builds in a folder of a
random name. ``make wheels`` runs this, so that the same commit gives the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
import zipfile
from pathlib import Path

from environment import the_one

_FOLDER = re.compile(rb"path\+file://[^\"#]*?(/rust/(?:py|core))(?=[#\"])")


def take_folder_out(wheel: Path) -> None:
    """Write a wheel again with paths from the workspace's root, and the list's new line in RECORD."""
    with zipfile.ZipFile(wheel) as opened:
        files = [(member, opened.read(member)) for member in opened.infolist()]
    lines = {}
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as written:
        for member, content in files:
            if member.filename.endswith(".cyclonedx.json"):
                content = _FOLDER.sub(rb"path+file://\1", content)
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                lines[member.filename] = f"{member.filename},sha256={digest},{len(content)}"
            elif member.filename.endswith(".dist-info/RECORD"):
                record = content.decode().splitlines()
                content = "".join(lines.get(row.split(",")[0], row) + "\n" for row in record).encode()
            written.writestr(member, content)


if __name__ == "__main__":
    take_folder_out(the_one(Path(sys.argv[1]), "*.whl"))
