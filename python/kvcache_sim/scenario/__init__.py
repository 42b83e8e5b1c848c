"""A validated scenario: YAML in, settings of the floors below out."""
