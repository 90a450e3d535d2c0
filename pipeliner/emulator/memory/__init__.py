"""Memory with its shadow: who wrote, who read, and whether that is ordered."""
