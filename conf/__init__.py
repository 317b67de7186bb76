"""Hydra config groups: the group is the folder, the option is the file."""
