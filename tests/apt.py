"""Install programs of Debian that some tests need, where that is allowed (root, apt-get).

python -m tests.apt chromium        print what cannot be had; the tests are then skipped
"""

import os
import shutil
import subprocess
import sys


def install(*packages: str) -> str:
    """Install packages; return why they cannot be had, empty if they can."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return "needs root and apt-get"
    get = ["install", "-qq", "-y", "--no-install-recommends", *packages]
    for words in (["update", "-qq"], get):
        try:
            subprocess.run(
                ["apt-get", *words],
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=True,
                timeout=900,
            )
        except subprocess.SubprocessError as error:
            return f"{error} {getattr(error, 'stderr', None) or ''}".strip()[-500:]
    return ""


if __name__ == "__main__":
    wanted = [name for name in sys.argv[1:] if shutil.which(name) is None]
    if wanted and (reason := install(*wanted)):
        sys.stdout.write(f"Tests with {', '.join(wanted)} are skipped: {reason}\n")
