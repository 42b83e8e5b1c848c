"""Finished runs made visible: report, timeline, comparison, explanation."""
