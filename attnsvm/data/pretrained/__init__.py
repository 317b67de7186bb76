"""Attention layers of pretrained models: the rows that they see, and every head as a matrix W."""

from attnsvm.data.pretrained.hooks import heads_of
from attnsvm.data.pretrained.layer import CONTROLS, AttentionLayer, Restricted, restricted
