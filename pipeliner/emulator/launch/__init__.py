"""The host's side: arguments, sizes, launches."""
