"""Plant one defect at a time in a lowered kernel and see whether the emulator finds it."""

from .campaign import Campaign, Fate, MutationReport, mutate
from .mutants import Mutant, mutants, mutated

__all__ = ["Campaign", "Fate", "Mutant", "MutationReport", "mutants", "mutate", "mutated"]
