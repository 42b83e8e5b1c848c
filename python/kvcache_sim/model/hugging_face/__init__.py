"""Models from Hugging Face configurations: ``config.json`` as published with the weights.

- ``architectures``   the architectures that are read: of each, who reads its attention and its feed-forward
- ``configuration``   a Hugging Face ``config.json`` read as a model
- ``feed_forward``    feed-forward layers from a configuration
- ``fields``          reading one configuration
- ``head_attention``  attention with keys and values a head, from a configuration
- ``latent``          latent attention from a configuration: DeepSeek-V2, V3, V3.2 and V4, Kimi-K2, GLM-5
- ``quantization``    formats of weights and KV from a checkpoint's ``quantization_config``
- ``recurrent``       layers with a recurrent state from a configuration
- ``searched``        layers that a search has made different one by one (Nemotron-NAS): ``block_configs``
"""
