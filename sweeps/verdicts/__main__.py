"""`python -m attnsvm.sweeps.verdicts`."""

import sys

from .command import main

sys.exit(main())
