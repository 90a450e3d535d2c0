"""How a proof runs a kernel: again and again, by every way that its open loops can take."""
