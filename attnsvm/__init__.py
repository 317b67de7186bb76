"""attnsvm."""
