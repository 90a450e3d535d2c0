"""What every part of the emulator uses: reports, types, clocks, arithmetic."""
