"""Sentences about loops whose code would be too long to be made."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    "size.slots": (
        "cannot pipeline loop '{loop}': ring '{buffer}' has {slots} slots, at most {most} are "
        "carried out"
    ),
    "size.stages": (
        "cannot pipeline loop '{loop}': it has {stages} stages, at most {most} are carried out"
    ),
    "size.unroll": (
        "cannot pipeline loop '{loop}': it has {unroll} iterations unrolled, at most {most} are "
        "carried out"
    ),
    "size.statements": (
        "cannot pipeline loop '{loop}': {steps} steps of {ops} ops in it and around it are more "
        "than the {most} statements that are carried out"
    ),
}
