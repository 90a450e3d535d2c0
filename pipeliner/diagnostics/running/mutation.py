"""Sentences about mutants of a kernel: what kills one, and why one that survives is equivalent."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    "mutation.wrong_kernel": "cannot mutate a kernel that is wrong itself: {cause}",
    "mutation.wrong_sums": (
        "cannot mutate a kernel that is wrong itself: error / bound = {error:.2f} against the "
        "reference, the bound being {tolerance}"
    ),
    "mutation.in_expressions": (
        "cannot mutate {count:count synchronising operation} inside of expressions"
    ),
    "mutation.no_operation": (
        "cannot mutate operation {number}: the kernel has {count:count operation}, from 0 on"
    ),
    # Which CTAs run with each
    "mutation.ends": "the first and the last of {total} CTAs, with their clusters",
    # What kills a mutant
    "mutation.hazard": "{hazard}{where}",
    "mutation.differs": "{wrong} of {size} elements of {output} differ",
    # Why one that survives is equivalent
    "mutation.nothing_follows": "no access to memory follows it that it could order",
    "mutation.no_wait": "no wait follows it, so that nothing depends on its group",
    "mutation.joined": "its copies join the next group, and the first wait completes both",
    "mutation.never_waits": (
        "at most {most:count group} can be in flight where it stands, so it never waits"
    ),
    "mutation.unneeded": (
        "{why}; no data decides what is accessed, and a run without it has no unordered accesses"
    ),
    "mutation.not_ours": "the function had it, or TVM added it",
    "mutation.unrolled": "TVM unrolled the loop that needs it",
}
