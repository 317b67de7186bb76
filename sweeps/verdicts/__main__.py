"""`python -m attnsvm.sweeps.verdicts`."""

from .command import main

raise SystemExit(main())
