"""Sentences about CTAs: which are run, and why nothing is known of what others write."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    # Which CTAs are run
    "sample.all": "all CTAs",
    "sample.all_because": "all CTAs: {why}",
    "sample.asked": "CTAs {blocks:list}",
    "sample.some": "{count} of {total} CTAs: {listed:list}",
    "sample.clusters": "{said}, with their clusters of {cluster}",
    "sample.cta": "({block:list}) {kind}",
    "sample.ragged": "({block:list}) ragged, {elements} of {most} elements",
    "sample.needed": "{count} more in lock step, for what later kernels read or write",
    "sample.all_in_step": "all {total} CTAs, in lock step all but {listed:list}: {why}",
    "sample.large": "later kernels read or write what {count} write",
    "sample.of_kernel": "{kernel}: {said}",
    "sample.kernels": "{kernels}",
    "sample.block": "expected a block to be x, y, z, not {value}",
    "sample.option": (
        "expected --blocks to be auto, all or X[,Y[,Z]][:...], for each kernel behind a /, not "
        "'{value}'"
    ),
    "sample.kernel": "expected CTAs of at most {count:count kernel}, not of kernel {number}",
    # What is known of races between CTAs
    "ownership.disjoint": "no two of {count} meet in an element, by their indices",
    "ownership.only_run": "only those run ({why})",
    "ownership.both_write": (
        "CTAs ({first:list}) and ({second:list}) both write {buffer}[{index:list}]"
    ),
    "ownership.write_and_read": (
        "CTAs ({first:list}) and ({second:list}) write and read {buffer}[{index:list}]"
    ),
    "ownership.of_kernel": "{kernel}: {said}",
    "ownership.kernels": "{kernels}",
    # Why it is not known
    "ownership.all_run": "all CTAs are run",
    "ownership.no_source": "the function before it was pipelined is not known",
    "ownership.strides": "'{buffer}' has strides of its own",
    "ownership.no_kernel": "there is no kernel",
    "ownership.lowered": "it is lowered to {lowered:count kernel}, not {count}",
    "ownership.around": "a {kind} is around one of several kernels",
    "ownership.workspace": "the extents of '{buffer}' are not known",
    "ownership.shared": "'{buffer}' and '{other}' may share memory",
    "ownership.touched": "later kernels read or write what any may write ({why})",
    "ownership.view": "'{buffer}' is a view of an argument",
    "ownership.pointer": "'{buffer}' is reached through a pointer",
    "ownership.statement": "nothing is known of a {kind}",
    "ownership.extent": "the extent of a loop is {extent}",
    "ownership.first": "a loop starts at {first}",
    "ownership.index": "an index of '{buffer}' is {index}",
    "ownership.many": "a statement reaches {buffer} {count} times",
}
