"""The asynchronous and matrix units: cp.async, TMA, mbarriers, mma, wgmma."""
