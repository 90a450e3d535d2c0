"""Processes that do what may crash or hang: compiling, and running kernels on a GPU."""

from .pool import Pool
from .worker import Worker

__all__ = ["Pool", "Worker"]
