"""Convolutions, pooling, and what goes between them."""
