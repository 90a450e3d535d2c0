"""Thread groups and CTAs in execution, in adversarial order."""
