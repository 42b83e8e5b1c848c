"""A pasted text as it is shown: one line whatever it holds, without the values that give access."""

from __future__ import annotations

import re

_ACCESS = r"(?<![\w-])[\w-]{0,60}?(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIAL)S?"
_VALUE = r"(?:\"[^\"]*\"?|'[^']*'?|[^\s,\]}]+)"
#: Values that give access: of variables, of flags (which may take several), of keys in YAML and JSON, of a
#: variable in a list of names and values, and words whose beginning says what they are.
_SECRETS = re.compile(
    rf"(?P<variable>{_ACCESS}=)(?:\"[^\"]*\"|'[^']*'|\S+)"
    r"|(?P<flag>--[a-z_-]{0,60}?(?:api-?_?key|token|password|passwd|secret)[\"']?(?:=|,?\s+(?:-\s+)?))"
    r"(?!-)\S+(?:\s+(?!-)\S+)*"
    rf"|(?P<key>[\"']?{_ACCESS}[\"']?:\s+|\bname:\s*[\"']?{_ACCESS}[\"']?,?\s+[\"']?value[\"']?:\s*){_VALUE}"
    r"|(?P<known>\b(?:hf_|sk-|ghp_|gsk_|nvapi-|AKIA|Bearer\s+))[\w.~+/-]{8,}",
    re.I,
)


def without_secrets(text: str) -> str:
    """Return a line or a comment without the values of keys, tokens and passwords."""
    return _SECRETS.sub(lambda found: f"{found[found.lastgroup or 0]}***", text)


def one_line(text: str) -> str:
    """Return a text as one line of printable characters: line breaks of any kind are blanks."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in " ".join(text.split()))


def shown(text: str) -> str:
    """Return a text as it may stand in a comment or a message."""
    return one_line(without_secrets(text))
