"""`python -m attnsvm.sweeps.report` is `attnsvm-report`."""

import sys

from .command import main

sys.exit(main())
