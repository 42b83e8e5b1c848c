"""What things cost: KV bytes a token, and the time of a scheduler step."""
