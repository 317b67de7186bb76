"""`python -m benchmarks [NAME ...]`: run the named benchmarks, all of them by default."""

import argparse
import importlib
from pathlib import Path

NAMES = sorted(p.stem for p in Path(__file__).parent.glob("[a-z]*.py"))

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=" | ".join(NAMES))
    asked = parser.parse_args().names or NAMES
    for unknown in set(asked) - set(NAMES):
        parser.error(f"{unknown}: must be {' | '.join(NAMES)}")
    for name in asked:
        print(f"\n## {name}\n", flush=True)
        importlib.import_module(f"benchmarks.{name}").main()
