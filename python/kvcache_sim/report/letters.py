"""Short names of runs shown together: A, B, C, … in the order given."""

from __future__ import annotations

from string import ascii_uppercase


def letter(number: int) -> str:
    """Return the short name of a run by its place, from 0: A to Z, then AA, AB, …"""
    name = ""
    number += 1
    while number:
        number, place = divmod(number - 1, len(ascii_uppercase))
        name = ascii_uppercase[place] + name
    return name
