"""Tensor operations: arithmetic, reductions, shapes, and tensors made from nothing."""
