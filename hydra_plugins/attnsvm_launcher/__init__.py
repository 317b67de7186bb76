"""Hydra plugin: SLURM for attnsvm."""
