"""Launch lines of engines to scenarios, and back.

- ``line``      a launch line taken apart: engine, model, flags
- ``flags``     which flag is which setting, an engine's table each
- ``making``    a scenario in the making, and the flags that no setting stands for
- ``one_kind``  vLLM without its hybrid cache manager
- ``to_scenario``  a launch line as a commented scenario
- ``to_line``   a resolved scenario as a launch line
- ``drafts``    flags of speculative decoding: an engine's to ``replica.speculation``, and back
"""
