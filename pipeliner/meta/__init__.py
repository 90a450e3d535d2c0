"""A plug-in for TVM's meta_schedule: its search, database and runners, our space and lowering.

    mod = pipeliner.meta.workload(Gemm(4096, 4096, 4096))
    database = ms.tune_tir(
        mod, pipeliner.meta.target("h100"), work_dir, 64, space=pipeliner.meta.space(),
        builder=pipeliner.meta.builder(), cost_model=pipeliner.meta.cost_model(),
        strategy="replay-trace", runner=...,
    )
    schedule = ms.tir_integration.compile_tir(database, mod, pipeliner.meta.target("h100"))
    kernel = pipeliner.build(schedule, "h100")

The space has a sketch for each tile that the model thinks well of, and in it the choices of the
plan as a sampled annotation: so a trace replays both. ``import_database`` and ``export_database``
carry records to and fro. meta_schedule needs psutil: ``pip install 'tvm-pipeliner[meta]'``.
"""

from .build import builder
from .databases import export_database, import_database
from .model import cost_model, postproc
from .space import space
from .workload import target, workload

__all__ = [
    "builder",
    "cost_model",
    "export_database",
    "import_database",
    "postproc",
    "space",
    "target",
    "workload",
]
