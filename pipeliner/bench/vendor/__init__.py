"""The vendor's libraries at their best: every algorithm that they offer, timed, the fastest named.

``cublaslt.py`` is the part of cuBLASLt's C API that is needed, by ctypes; ``products.py`` says how
it sees a workload; ``every.py`` tries each of its algorithms. ``convolutions.py`` has those of
cuDNN through torch, forward and backward, and ``fastest.py`` what both choose by.
"""
