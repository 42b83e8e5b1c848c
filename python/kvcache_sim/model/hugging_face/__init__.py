"""Models from Hugging Face configurations: ``config.json`` as published with the weights."""
