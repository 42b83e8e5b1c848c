"""Addresses of the network as verbs take them: each whole, so that no part of one is dropped."""

from __future__ import annotations

import re
from typing import NamedTuple

_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62})"
_HOST = rf"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<name>{_LABEL}(?:\.{_LABEL})*\.?))"
_ADDRESS = re.compile(rf"(?:(?P<scheme>[a-z]+)://)?{_HOST}(?::(?P<port>[0-9]{{1,5}}))?", re.ASCII)
_MOST_PORT = 65535


class Address(NamedTuple):
    """A host and a port, 0 where none is said; the scheme before them, or ""."""

    scheme: str
    host: str
    port: int


def address_of(text: str) -> Address | None:
    """Return ``[SCHEME://]HOST[:PORT]`` with a port from 1 to 65535; None for anything else."""
    found = _ADDRESS.fullmatch(text)
    if found is None or (found["port"] and not 1 <= int(found["port"]) <= _MOST_PORT):
        return None
    return Address(found["scheme"] or "", found["ipv6"] or found["name"], int(found["port"] or 0))
