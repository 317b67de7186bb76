"""`python -m sweeps.verdicts`."""

import sys

from sweeps.verdicts.command import main

sys.exit(main())
