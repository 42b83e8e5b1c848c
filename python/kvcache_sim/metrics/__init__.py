"""What was measured: columns with units, the recorder, histograms, digests, the summary."""
