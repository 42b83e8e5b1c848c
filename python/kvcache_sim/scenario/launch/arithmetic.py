"""Whole-number arithmetic of a shell: ``256*1024``, with variables by name."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

_MOST_CHARACTERS = 200
_LARGEST = 1 << 63
_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: int(left / right) if abs(left) < 1 << 53 else left // right,
    ast.Mod: lambda left, right: left - right * int(left / right),
    ast.Pow: lambda left, right: left**right if 0 <= right <= 63 else _LARGEST,
    ast.LShift: lambda left, right: left << right if 0 <= right <= 63 else _LARGEST,
    ast.RShift: lambda left, right: left >> min(right, 63),
}


def number_of(text: str, value: Callable[[str], str | None]) -> int | None:
    """Return the number that an expression gives; None if it has another operator or an unknown variable."""
    if len(text) > _MOST_CHARACTERS:
        return None
    try:
        found = _number(ast.parse(text.strip(), mode="eval").body, value)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        return None
    return found if abs(found) < _LARGEST else None


def _number(node: Any, value: Callable[[str], str | None]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return int(value(node.id) or "?")  # an unknown variable is no number
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand, value)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        left, right = _number(node.left, value), _number(node.right, value)
        if abs(left) < _LARGEST and abs(right) < _LARGEST:
            return _OPERATIONS[type(node.op)](left, right)
    raise ValueError(node)
