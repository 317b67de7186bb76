"""Softmax attention whose gradient is exact where it saturates: for torch models, and as `risk`."""

from attnsvm.nn.exact import attention, softmax_exact
