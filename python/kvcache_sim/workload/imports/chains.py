"""Prompts of OpenAI's Responses API whose beginning the server has: an earlier answer's, a conversation's."""

from __future__ import annotations

from typing import Any

from kvcache_sim.workload.imports.source import list_of
from kvcache_sim.workload.prompts.body import member

_ELSEWHERE = ("previous_response_id", "conversation")


class Chains:
    """Items of each answer's prompt and of the answer, by the answer's id and by the conversation's.

    Instructions and tools are no part of a chain: each request has its own. Memory: the items of all answers
    that the log's requests ask the server to store, shared along a chain.
    """

    def __init__(self) -> None:
        self._items: dict[str, list[Any]] = {}
        self._roots: dict[str, str] = {}

    def whole(self, body: Any) -> Any:
        """Return a body with the items before its own; None if the log does not have them."""
        before = _before(body)
        if not before:
            return body
        if before not in self._items:
            if member(body, "previous_response_id"):
                return None
            self._items[before] = []
        rest = {name: value for name, value in body.items() if name not in _ELSEWHERE}
        return {**rest, "input": [*self._items[before], *_items(body.get("input"))]}

    def add(self, asked: Any, whole: Any, response: Any) -> str:
        """Keep what a later request may continue; return the name of the chain, "" for another API's call."""
        output, name = member(response, "output"), member(response, "id")
        if not isinstance(output, list) or not isinstance(name, str):
            return ""
        before = _before(asked)
        root = self._roots.get(before, before or name)
        is_kept = isinstance(whole, dict) and whole.get("store") is not False
        items = [*_items(whole.get("input")), *output] if is_kept else []
        for key in {name, before if member(asked, "conversation") else name}:
            self._roots[key] = root
            if is_kept:
                self._items[key] = items
        return root


def _before(body: Any) -> str:
    """Return the name under which the server has the beginning of a prompt, "" if the body is whole."""
    conversation = member(body, "conversation")
    known = member(body, "previous_response_id") or member(conversation, "id") or conversation
    return known if isinstance(known, str) else ""


def _items(given: Any) -> list[Any]:
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return list_of(given)
