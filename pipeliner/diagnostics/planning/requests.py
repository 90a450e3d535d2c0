"""Sentences about requests: options that no kernel could honour."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    "request.renamed": "option '{option}' is called '{now}' now",
    "request.choice": "expected {option} to be one of {choices}, not {value}",
    "request.pair": "expected {option} to be two positive integers, not {value}",
    "request.slots": "expected {option} to be 'auto' or an integer of at least 1, not {value}",
    "request.roles": "expected roles to be 'auto' or a number of warpgroups, not {value}",
    "request.cluster": "expected cluster to be 'auto' or one of {choices}, not {value}",
    "request.in_flight": "expected in_flight to be 'auto' or one of {choices}, not {value}",
    "request.pdl": "expected pdl to be 'auto', True or False, not {value}",
    "request.plan_as_json": "cannot write a request that has a plan as JSON: write the plan",
}
