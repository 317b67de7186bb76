"""`make test-processors`: tests of bits and last digits, run again under other arithmetic.

Another processor runs other routines of torch, MKL, OpenBLAS and numba. These settings choose such
routines on the processor at hand; the tests are those marked `processors`.
"""

import os
import subprocess
import sys
from pathlib import Path

SETTINGS: dict[str, dict[str, str]] = {
    "numba for any processor": {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
    "torch without vector instructions": {"ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "1"},
    "MKL on any processor, two threads": {"MKL_CBWR": "COMPATIBLE", "OMP_NUM_THREADS": "2"},
    "OpenBLAS of an old processor": {"OPENBLAS_CORETYPE": "Nehalem", "OMP_NUM_THREADS": "2"},
}


def main() -> int:
    """Run the marked tests under every setting; return 1 if any fails."""
    tests = Path(__file__).parent.rglob("test_*.py")
    files = [str(path) for path in tests if "pytest.mark.processors" in path.read_text()]
    failed = []
    for name, setting in SETTINGS.items():
        print(f"--- {name}: {setting}", flush=True)
        command = [sys.executable, "-m", "pytest", "-q", "-m", "processors and not full", *files]
        if subprocess.run(command, env=os.environ | setting, check=False).returncode:
            failed.append(name)
    print(f"failed under: {', '.join(failed) or 'none'}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
