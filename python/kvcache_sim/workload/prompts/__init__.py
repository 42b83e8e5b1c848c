"""Prompts as their APIs describe them: segments in the order in which they are rendered, and their text.

`segments` is the common form; one module a family of APIs reads bodies into it. Imports of logs, ``record``
and ``serve`` share them, so that a prompt has the same tokens everywhere.
"""
