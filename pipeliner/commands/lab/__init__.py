"""Commands that measure, and that judge the model by what was measured."""
