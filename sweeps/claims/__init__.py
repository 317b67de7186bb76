"""The claims of the papers: the hypotheses, the runs and the prediction of each.

A yaml file of this package has the claims of one paper. Hypotheses and prediction are expressions
in the columns on record, so a verdict can be derived again from the records alone.
"""

from .claim import FAILS, HOLDS, READINGS, Claim, Runs, all_claims
from .evidence import OTHERWISE, SIZES, Evidence
