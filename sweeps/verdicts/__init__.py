"""`attnsvm-claims`: the claims of the papers, run and judged from the records of their runs."""

from .command import main
from .derive import Verdict, rulings, verdict
