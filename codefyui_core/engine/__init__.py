"""Executes the plan of a graph, inside of the run's process."""

from .cache import ResultCache
from .job import Job, Limits, NodeSet, Places
from .numbers import encode, restore
from .recording import Recorder
from .run import deterministic, run

__all__ = [
    "Job",
    "Limits",
    "NodeSet",
    "Places",
    "Recorder",
    "ResultCache",
    "deterministic",
    "encode",
    "restore",
    "run",
]
