"""Logs of production to traces: ``kvsim trace import``.

- ``source``     a log's lines and JSON values, each with its line
- ``when``       dates of logs as ns
- ``naming``     texts and tokens to lengths and ``salted`` block ids
- ``imported``   a request as it was logged, and the notes of what was left out
- ``messages``   bodies as OpenAI's clients send them
- ``registry``   every kind of log, one file each
- ``write``      the trace

No text of a log reaches the trace.
"""
