"""Code shared by tests and benchmarks: random small scenarios, and small reference models."""
