"""Hydra plugin: the config files of plug-in packages."""
