"""Many runs: cells, workers, results that survive a crash."""
