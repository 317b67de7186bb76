"""Config files of the plug-in."""
