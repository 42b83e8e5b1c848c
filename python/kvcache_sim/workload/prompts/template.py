"""A model's own chat template (Jinja), from the files of its tokenizer, in Jinja's sandbox.

Source: transformers, ``apply_chat_template``: ``messages``, ``tools``, ``add_generation_prompt``, the special
tokens, ``raise_exception``, ``strftime_now`` and ``tojson`` are what templates use.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from kvcache_sim.base.errors import InputOutputError, UsageError
from kvcache_sim.workload.prompts.body import member
from kvcache_sim.workload.prompts.render import CHATML, rendered
from kvcache_sim.workload.prompts.segments import Chat, Message, Prompt, Segment

#: Templates that write today's date get this one, so that equal chats stay equal.
_TODAY = datetime(2026, 1, 1, tzinfo=UTC)
#: Stands in a rendered text for a segment without text.
_HOLE = re.compile("\ue000(\\d+)\ue001")


class Renderer(NamedTuple):
    """A rendering of chats, and its name for people."""

    name: str
    render: Callable[[Chat], Prompt]


def renderer_of(tokenizer: Path | None) -> Renderer:
    """Return the template in the folder of a tokenizer (a file or its directory), else the default rendering.

    Raises UsageError without the package jinja2 or for a template that is none, InputOutputError for files
    that cannot be read.
    """
    if tokenizer is not None:
        folder = tokenizer if tokenizer.is_dir() else tokenizer.parent
        path, configured = folder / "chat_template.jinja", folder / "tokenizer_config.json"
        text = _text(path)
        try:
            config = json.loads(_text(configured) or "{}")
        except (ValueError, RecursionError) as error:
            raise InputOutputError("not JSON", str(configured), str(error)[:80]) from None
        if not text:
            path, text = configured, _chosen(member(config, "chat_template"))
        if text:
            return Renderer(str(path), _Template(path, text, config))
    return Renderer(CHATML, rendered)


def _text(path: Path) -> str:
    """Return the text of a file, "" if there is none."""
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise InputOutputError("cannot be read", str(path), str(error)[:80]) from None


def _chosen(template: Any) -> str:
    """Return the template of a configuration; of several with names, the one for tools or the default."""
    if isinstance(template, list):
        by_name = {member(each, "name"): member(each, "template") for each in template}
        template = by_name.get("tool_use") or by_name.get("default")
    return template if isinstance(template, str) else ""


class _Template:
    def __init__(self, path: Path, text: str, config: Any) -> None:
        try:
            from jinja2 import TemplateError
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError:
            missing = "the package jinja2 is not installed"
            raise UsageError(missing, where=str(path), hint="pip install jinja2") from None

        def refuse(reason: str) -> None:
            raise TemplateError(reason)

        made = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        made.filters["tojson"] = partial(json.dumps, ensure_ascii=False)
        made.globals.update(raise_exception=refuse, strftime_now=_TODAY.strftime)
        self._path = path
        special = {name: member(config, name) for name in ("bos_token", "eos_token")}
        self._special = {name: member(token, "content") or token for name, token in special.items()}
        try:
            self._template = made.from_string(text)
        except Exception as error:  # jinja2 raises its own, and those of Python's parser
            raise self._refused(error) from None

    def _refused(self, error: Exception) -> UsageError:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        return UsageError("the chat template failed", where=str(self._path), got=reason)

    def __call__(self, chat: Chat) -> Prompt:
        holes = [tool for tool in chat.tools if not tool.text]
        before = "".join(_hole(at) for at in range(len(holes)))
        given: dict[str, Any] = {
            "messages": [_message(message, holes) for message in chat.messages],
            "tools": [json.loads(tool.text) for tool in chat.tools if tool.text] or None,
        }
        try:
            text = before + self._template.render(**given, add_generation_prompt=True, **self._special)
        except Exception as error:  # a template runs anything that Jinja has
            raise self._refused(error) from None
        return tuple(
            holes[int(piece)] if at % 2 else Segment("template", piece)
            for at, piece in enumerate(_HOLE.split(text))
            if piece
        )


def _hole(at: int) -> str:
    return f"\ue000{at}\ue001"


def _message(message: Message, holes: list[Segment]) -> dict[str, Any]:
    """Return a message as templates take it; segments without a text leave a hole."""
    content = thought = ""
    calls: list[dict[str, Any]] = []
    for part in message.parts:
        if part.tokens is not None and not part.text:
            content += _hole(len(holes))
            holes.append(part)
        elif part.kind == "tool_call":
            function = {"name": part.name, "arguments": _arguments(part.text)}
            calls.append({"type": "function", "function": function})
        elif part.kind == "thinking":
            thought += part.text
        else:
            content += _HOLE.sub("", part.text)
    found = {"role": message.role, "content": content, "reasoning_content": thought, "tool_calls": calls}
    return {name: value for name, value in found.items() if value or name == "content"}


def _arguments(text: str) -> Any:
    """Return the arguments of a call as JSON, as templates take them; another text stays one."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
