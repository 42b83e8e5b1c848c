"""What things cost: KV bytes a token, and the time of a scheduler step.

``models.load_model``, ``gpus.load_gpu`` and ``step_times.load_step_time`` open the packaged files by name.
"""
