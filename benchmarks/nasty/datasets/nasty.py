"""The difficult instances of one class of conditioning."""

from benchmark_utils import CLASSES, load
from benchopt import BaseDataset


class Dataset(BaseDataset):
    """All of them, or every k-th."""

    name = "nasty"
    parameters = {"conditioning": list(CLASSES), "every": [1]}

    def get_data(self):
        chosen = [known for known in load() if known.conditioning == self.conditioning]
        return {"instances": chosen[:: self.every]}
