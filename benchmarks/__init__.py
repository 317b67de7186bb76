"""Speed at equal accuracy, against named peers, as ratios within one run."""
