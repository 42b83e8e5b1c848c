"""Folders of request bodies, as the APIs take them, as calls: each folder with bodies is a session.

Bodies have no counts: ``BYTES_A_TOKEN`` bytes of text are a token.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kvcache_sim.base.errors import TraceError, UsageError
from kvcache_sim.extras.session.calls import Mark, Segment
from kvcache_sim.workload.imports.source import list_of
from kvcache_sim.workload.imports.turns import content_hash, text_bytes
from kvcache_sim.workload.prompts.body import json_text, member
from kvcache_sim.workload.prompts.segments import kind_of_role

BYTES_A_TOKEN = 4
_KINDS = {"tool_result": "tool_result", "function_call_output": "tool_result", "image": "image"}
_KINDS |= {"tool_use": "tool_call", "function_call": "tool_call", "thinking": "thinking"}
#: Parameters that spoil a cache where they change, by the members that hold them.
_PARAMETERS = {
    "tool_choice": ("tool_choice",),
    "thinking": ("thinking",),
    "effort": ("output_config", "reasoning_effort", "reasoning"),
    "speed": ("speed",),
}


class Block(NamedTuple):
    """A content block of a body, its address (``messages[4].content[0]``), and its breakpoint's lifetime."""

    address: str
    segment: Segment
    ttl: str = ""


class Body(NamedTuple):
    """A request's body: its file, model, blocks in rendered order and parameters."""

    file: str
    model: str
    blocks: tuple[Block, ...]
    parameters: dict[str, str]
    marks: tuple[Mark, ...]
    #: Number of the first block of the last message: what is before was there before the request.
    history: int


def read_bodies(folder: Path) -> dict[str, list[Body]]:
    """Return the bodies of each folder, by its path, in order of file names.

    Raises:
        UsageError: There are none.
        TraceError: A file is no body.
    """
    found: dict[str, list[Body]] = {}
    for file in sorted(folder.rglob("*.json")):
        try:
            body = json.loads(file.read_text("utf-8"))
        except (ValueError, RecursionError) as error:
            where = f"{file}:{getattr(error, 'lineno', 1)}:{getattr(error, 'colno', 1)}"
            raise TraceError("not JSON", where=where, got=str(error).split(":")[0]) from None
        found.setdefault(file.parent.relative_to(folder).as_posix(), []).append(_body(str(file), body))
    if not found:
        raise UsageError("no request bodies", where=str(folder), expected="files *.json, a body each")
    return found


def _body(file: str, body: Any) -> Body:
    messages = member(body, "messages", "input")
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    model = member(body, "model")
    if not isinstance(messages, list) or not messages or not isinstance(model, str):
        expected = "model and messages (or input), as the APIs of Anthropic and OpenAI take them"
        raise TraceError("no request's body", where=file, got=str(body)[:40], expected=expected)
    blocks = [*_listed("tools", "tools", member(body, "tools", "functions"))]
    blocks += _listed("tools", "response_format", member(body, "response_format", "text"))
    blocks += _listed("system", "system", member(body, "system", "instructions"))
    last = len(blocks)
    for number, message in enumerate(messages):
        last = len(blocks)
        blocks += _message(f"messages[{number}]", message)
    if member(body, "cache_control") is not None:  # automatic: on the last block
        blocks[-1] = blocks[-1]._replace(ttl=_ttl(body))
    marks = tuple(Mark(at, block.ttl) for at, block in enumerate(blocks) if block.ttl)
    return Body(file, model, tuple(blocks), _parameters(body), marks, last)


def _parameters(body: Any) -> dict[str, str]:
    found = {
        name: json_text(member(body, *names)) for name, names in _PARAMETERS.items() if member(body, *names)
    }
    types = [str(member(tool, "type")) for tool in list_of(member(body, "tools"))]
    return found | ({"web_search": "on"} if any(each.startswith("web_search") for each in types) else {})


def _message(address: str, message: Any) -> Iterator[Block]:
    """Yield the blocks of a message: its parts, and calls of tools; an item of Responses is one."""
    content, role = member(message, "content"), str(member(message, "role"))
    kind = kind_of_role(role)
    if content is None and not member(message, "tool_calls"):
        yield _block(_KINDS.get(str(member(message, "type")), kind), address, message, role)
    yield from _listed(kind, f"{address}.content", content, role)
    yield from _listed("tool_call", f"{address}.tool_calls", member(message, "tool_calls"), role)


def _listed(kind: str, address: str, value: Any, role: str = "") -> Iterator[Block]:
    """Yield a block a part of a list; any other value is one block."""
    if isinstance(value, list):
        for number, part in enumerate(value):
            yield _block(_KINDS.get(str(member(part, "type")), kind), f"{address}[{number}]", part, role)
    elif value is not None and value != "":
        yield _block(kind, address, value, role)


def _block(kind: str, address: str, part: Any, role: str) -> Block:
    size = len(json_text(part).encode()) if kind == "tools" else max(text_bytes(part), 1)
    name = f"{role} {content_hash(part)}" if role else content_hash(part)
    return Block(address, Segment(kind, name, size, -(-size // BYTES_A_TOKEN)), _ttl(part))


def _ttl(part: Any) -> str:
    """Return the lifetime of the breakpoint on a part; "" without one."""
    control = member(part, "cache_control", "prompt_cache_breakpoint")
    return "" if control is None else str(member(control, "ttl") or "5m")
