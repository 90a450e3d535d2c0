"""One file for each command: ``HELP``, ``configure(parser)`` and ``run(args) -> exit code``.

They are imported for ``--help``, so what takes time to import is imported inside functions.
"""
