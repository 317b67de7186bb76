"""Peak memory of training networks against their number: `python -m benchmarks depth_memory`.

Two layers at (n, T, d) = (4, 5, 16), 10 steps and 2 snapshots, attention alone and with
everything trained. Each size runs in a process of its own. A run of a sweep
trains as many networks at once as `networks_at_once` says fit in 1 GiB, whatever `trials` is.
"""

from typing import Any

from benchmarks._measure import apart, print_head, print_row, with_peak

SIZES = 100, 1000, 10_000
MODELS: dict[str, dict[str, Any]] = {"attention": {}, "all": {"mlp": 16, "trained": "all"}}


def peak(size: int, options: dict[str, Any]) -> float:
    """Return the MiB that training of `size` networks takes at most."""
    import attnsvm

    model = attnsvm.Transformer(layers=2, **options)

    def train(trials: int) -> None:
        batch = attnsvm.sample("sphere", model=model, n=4, T=5, d=16, trials=trials)
        attnsvm.train_layers(batch, model, steps=10, record_every=10)

    train(2)  # imports and compiled code are not counted
    return with_peak(lambda: train(size))[1]


def main() -> None:
    """Print the table."""
    print_head("trained", "instances", "peak memory over start", "KiB an instance")
    for name, options in MODELS.items():
        for size in SIZES:
            found = apart(peak, size, options)
            print_row(name, size, f"{found:.0f} MiB", f"{1024 * found / size:.0f}")
