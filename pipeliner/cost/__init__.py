"""The cost model: from what a kernel does to a plan, with the numbers behind each choice.

README.md of this folder explains it and lists its constants.
"""

from .descriptor import Work
from .ops import op_plans
from .predict import Prediction, predict

__all__ = ["Prediction", "Work", "op_plans", "predict"]
