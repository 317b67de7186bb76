"""`python -m sweeps.report`."""

import sys

from sweeps.report.command import main

sys.exit(main())
