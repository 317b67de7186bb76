"""`python -m benchmarks [NAME[.FUNCTION] ...] [FIELD=VALUE ...]`: run benchmarks, or all of them.

A module runs its function `main`, or FUNCTION with these fields, as `training.block steps=3000`.
"""

import importlib
import sys
from pathlib import Path

NAMES = sorted(p.stem for p in Path(__file__).parent.glob("[a-z]*.py"))

if __name__ == "__main__":
    words = sys.argv[1:]
    fields = dict(word.split("=", 1) for word in words if "=" in word)
    options = {key: int(value) if value.isdigit() else value for key, value in fields.items()}
    for name in [word for word in words if "=" not in word] or NAMES:
        module, _, function = name.partition(".")
        if module not in NAMES:
            sys.exit(f"{module}: must be {' | '.join(NAMES)}")
        print(f"\n## {name}\n", flush=True)
        getattr(importlib.import_module(f"benchmarks.{module}"), function or "main")(**options)
