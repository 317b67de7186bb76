"""Hydra plugin: the sweeper of attnsvm."""
