"""Attention layers of pretrained models: the rows that they see, and every head as a matrix W."""

from attnsvm.pretrained.files import Folder, folder
from attnsvm.pretrained.hooks import heads_of
from attnsvm.pretrained.instance import CONTROLS, Restricted, restricted
from attnsvm.pretrained.layer import AttentionLayer
from attnsvm.pretrained.network import forward

__all__ = [
    "CONTROLS",
    "AttentionLayer",
    "Folder",
    "Restricted",
    "folder",
    "forward",
    "heads_of",
    "restricted",
]
