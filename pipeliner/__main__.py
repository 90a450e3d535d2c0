"""``python -m pipeliner``."""

from .cli import main

raise SystemExit(main())
