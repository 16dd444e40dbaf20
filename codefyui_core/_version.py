"""The one place where the version of every distribution of this repository stands."""

__version__ = "0.1.0"
