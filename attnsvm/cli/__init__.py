"""The command `attnsvm`: the command line, one run, a dry run, signals, errors."""
