"""The trace toolbox: statistics, a writer, and transforms that check their own invariants."""
