"""Prompts as their APIs describe them: chats of segments, their rendering, and the counts of each vendor.

Imports of logs, ``record`` and ``serve`` share them, so that a prompt has the same tokens everywhere.

- ``read.prompt_of(body, seen)``: a request's body of any family → ``Chat``, text or token ids, or None.
- ``read.answer_of(response, seen)``: a response of any family → the assistant's ``Message``, or None.
- ``usage.usage_of(*rows)``: whole prompt, answer and cached tokens, as the vendor means them.
- ``stream.joined(response)``: a stream's text or chunks as one response.
- ``responses.joined(chat.messages, (answer, *more))``: the history of a chain (``previous_response_id``).
- ``segments``: ``Chat(tools, messages)``, ``Message(role, parts)``, ``Segment``. What a log does not hold is
  a segment with ``tokens`` and a ``name``: in ``Chat.tools``, or in a message's parts.
- ``seen`` counts what is not rendered or assumed; readers of logs pass ``reading.notes.seen``.
- ``body.BodyError`` is raised for a wrong body; ``imports.kind.each_line`` makes it the error of its line.
- ``messages``, ``responses`` and ``gemini`` read a family each, ``parts`` the parts of any message.
- ``render.rendered(chat)`` is the default rendering; ``template`` reads a model's own.

A reader of logs yields ``Logged(arrival_ns, prompt, answer, input_tokens, output_tokens, session, measured)``
with these values as they are: ``imports.naming`` renders, tokenizes and names blocks.
"""
