"""Requests in: readers of published traces, generators, sessions, tokens."""
