"""The node catalog on PyTorch and scikit-learn."""
