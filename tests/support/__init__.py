"""What tests and benchmarks share: random small scenarios, and small models that results are judged by."""
