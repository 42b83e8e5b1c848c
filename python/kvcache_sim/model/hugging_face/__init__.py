"""Models from Hugging Face configurations: ``config.json`` as published with the weights.

- ``architectures``   the architectures that are read: of each, who reads its attention and its feed-forward
- ``attention``       attention from a configuration: keys and values a head, or latents
- ``configuration``   a Hugging Face ``config.json`` read as a model
- ``feed_forward``    feed-forward layers from a configuration
- ``fields``          reading one configuration
- ``quantization``    formats of weights and KV from a checkpoint's ``quantization_config``
- ``recurrent``       layers with a recurrent state from a configuration
- ``searched``        layers that a search has made different one by one (Nemotron-NAS): ``block_configs``
"""
