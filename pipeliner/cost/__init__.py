"""The cost model: from what a kernel does to a plan, with the numbers behind each choice.

README.md of this folder explains it and lists its constants.
"""

from .choose import choose
from .descriptor import Work
from .ops import op_cost
from .predict import Prediction, predict

__all__ = ["Prediction", "Work", "choose", "op_cost", "predict"]
