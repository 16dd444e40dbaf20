"""Outputs that runs recorded: how they lie on disk, and how parts of them are read without torch or numpy."""

from .format import DATA, INDEX, STEPS, Index, Kind, Recorded, RecordedNode, Step
from .reading import Answer, Question, What, answer
from .store import KEEP_RUNS, OutputStore
from .writing import Captured, CapturedNode, write

__all__ = [
    "DATA",
    "INDEX",
    "KEEP_RUNS",
    "STEPS",
    "Answer",
    "Captured",
    "CapturedNode",
    "Index",
    "Kind",
    "OutputStore",
    "Question",
    "Recorded",
    "RecordedNode",
    "Step",
    "What",
    "answer",
    "write",
]
