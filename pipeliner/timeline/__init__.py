"""A pipelined loop in model time: prologue, steady state and epilogue, and the state of every slot.

    drawn = timeline(func, "h100")     # beside it, the same loop with one slot in each ring
    drawn.pipelined.steady.cycles      # of one iteration; drawn.plain is the un-pipelined one
    print(text(drawn))                 # or svg(drawn), chrome(drawn): the text of a file

``trace`` runs a single ``LoopPlan``.
"""

from .chrome import chrome
from .drawn import Timeline
from .make import timeline, timeline_from, timeline_of, timeline_with
from .model import LoopRun, Runs
from .program import Slot
from .slots import Span
from .svg import svg
from .terminal import text
from .trace import Event, Hold, Steady, Trace, steady, trace

__all__ = [
    "Event",
    "Hold",
    "LoopRun",
    "Runs",
    "Slot",
    "Span",
    "Steady",
    "Timeline",
    "Trace",
    "chrome",
    "steady",
    "svg",
    "text",
    "timeline",
    "timeline_from",
    "timeline_of",
    "timeline_with",
    "trace",
]
