"""Cycles that copies, matmuls and statements keep each pipe of an SM busy, in one iteration."""

from .copies import Asking, of_copy
from .matmuls import of_arithmetic, of_fragments, rereads_are_free
from .pipes import PIPE_NORM, PIPE_WORDS, Usage, of_statement

__all__ = [
    "PIPE_NORM",
    "PIPE_WORDS",
    "Asking",
    "Usage",
    "of_arithmetic",
    "of_copy",
    "of_fragments",
    "of_statement",
    "rereads_are_free",
]
