"""Sessions of agents on a provider's prompt cache: what they read, write and cost, and why a call read less.

- ``as_json``  the bill as JSON
- ``asked``    sessions of logs and the bills of edited ones, as the verb and Python ask
- ``bill``     tokens and dollars by model, measured and predicted, and each break with its cost
- ``bodies``   folders of request bodies, as the APIs take them
- ``breaks``   causes in order of their cost
- ``calls``    calls of sessions as logs have them, and what is predicted of each
- ``causes``   the cause of a call that read less
- ``compared`` two logs or folders of bodies, replayed
- ``engine``   the same sessions on a scenario of one's own
- ``gate``     the verdict on a change against the main branch
- ``heads``    tools and system that no log has, and which conversations share them
- ``known``    facts that counts have shown, and calls that have been replayed
- ``load``     logs of agents as calls
- ``page``     the bill as an HTML page, with each prompt's timeline
- ``predict``  what a provider's cache does with each call
- ``prompts``  prompts as paths of blocks in a cache, and their tokens
- ``screen``   the bill in 80 columns
- ``sized``    whole prompts of calls with the tokens of each block; calls of edited prompts
- ``texts``    texts of what differs first, for those who ask
- ``what_if``  the bill of the same sessions with one thing changed
"""
