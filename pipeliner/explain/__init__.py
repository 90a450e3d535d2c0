"""Read what was made: pass by pass, in short, and why not otherwise."""
