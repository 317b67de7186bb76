"""`python -m attnsvm.sweeps.report` is `attnsvm-report`."""

from .command import main

raise SystemExit(main())
