"""`python -m attnsvm.sweeps.report`."""

import sys

from .command import main

sys.exit(main())
