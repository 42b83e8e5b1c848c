"""A reverse proxy that writes a trace of its traffic: lengths, times and salted block ids, no text.

- ``observed``   lengths and times of one request and its answer
- ``answer_chunks`` the chunks of a streamed answer of any API
- ``salted``     block ids that reveal nothing without the salt
- ``trace_file`` rows as requests end, sorted by arrival at the end of the recording
- ``texts``      requests and answers as text, only on request
- ``proxy``      the connections, whose bytes are forwarded unchanged
"""
