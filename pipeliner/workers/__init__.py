"""Processes that do what may crash or hang: compiling, and running kernels on a GPU."""

from .worker import Worker

__all__ = ["Worker"]
