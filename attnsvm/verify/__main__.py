"""`python -m attnsvm.verify` is `attnsvm-verify`."""

import sys

from attnsvm.verify.command import main

if __name__ == "__main__":
    sys.exit(main())
