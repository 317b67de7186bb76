"""`attnsvm-verify`: prove a record again, without the code that made it."""

from attnsvm.verify.constraints import StoredSvm
from attnsvm.verify.svm import Proof, verify
