"""The difficult instances as a benchmark of solvers: `benchopt run benchmarks/nasty`."""
