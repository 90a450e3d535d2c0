"""TensorIR: build it, walk it, and answer questions about its indices."""
