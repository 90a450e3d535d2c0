"""Emit tile matmuls: simt, mma.sync, wgmma; fragments and operands."""
