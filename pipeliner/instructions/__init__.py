"""The planning half of matrix instructions: shapes, types, warps, registers."""
