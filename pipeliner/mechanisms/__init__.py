"""The planning half of copy and store mechanisms, roles and launches."""
