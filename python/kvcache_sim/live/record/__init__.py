"""A reverse proxy that writes a trace of what passes: lengths, times and salted block ids, no text.

- ``observed``   what one request and its answer tell while they pass
- ``salted``     block ids that tell nothing without the salt
- ``trace_file`` rows as they end, sorted by arrival when the recording does
- ``texts``      what was said, only where it is asked for
- ``proxy``      the connections, whose bytes are passed on untouched
"""
