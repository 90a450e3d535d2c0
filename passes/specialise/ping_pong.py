"""Order consumer warpgroups that alternate on tiles (ping-pong): one multiplies, one stores.

``pipeliner/mechanisms/ping_pong.py`` says what it needs, and when it comes by default.

    for tile in tiles:                    for tile in tiles:
        for k in range(n): ..                 if tile % 2 == group:
        C[tile] = ..                =>            wait token[group]
                                                  for k in range(n): ..
                                                  arrive at token[1 - group]
                                                  C[tile] = ..    # the other group multiplies
                                              else:
                                                  slot, phase: n steps further

All groups share the rings, whose slots are used in the order of the tiles; each group counts the
steps of the tiles that it leaves to others. The main loops run in the order of the tiles, so the
epilogue of one group runs under the arithmetic of the other. Without that order a group could get
ahead by more than a ring and mistake the phase of a slot for the one after the next, which has the
same parity.

A token keeps the order: one mbarrier for each group (PTX ISA, mbarrier), at which all threads of
the previous group arrive, each after its own waits. The first group has the token first, because a
new mbarrier counts as having completed phase 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from tvm import tirx
from tvm.script import tirx as T

from ...errors import LoweringError
from ...plan import CONSUMER, RolePlan
from ...values.op import Op
from ...values.origin import Origin
from ..ir.nodes import Buffer, Expr, Stmt, Var, buffer, i32, seq, unrolled, with_origin
from ..matmul.descriptors import uniform
from ..recognise.by_tile import runs_by_tile
from ..sync.mbarriers import MBARRIER_BYTES

TOKEN: Final = "turn"
"""Name of the mbarriers."""


@dataclass(frozen=True)
class PingPong:
    """The order of the groups of ``role``, whose threads ``thread`` numbers.

    ``barriers``: one mbarrier for each group. ``group``: a register with the group of the thread.
    ``phase``: a register that counts how often that group had the token, modulo 2.
    """

    role: RolePlan
    thread: Var
    barriers: Buffer
    group: Buffer
    phase: Buffer

    @staticmethod
    def of(role: RolePlan, thread: Var) -> PingPong | None:
        """Return new mbarriers for the groups of ``role``; None if there is only one group."""
        if role.ping_pong_groups == 1:
            return None
        barriers = buffer([role.ping_pong_groups, 1], "uint64", TOKEN, "shared", MBARRIER_BYTES)
        group, phase = (buffer([1], "int32", n, "local") for n in ("team", f"{TOKEN}_phase"))
        return PingPong(role, thread, barriers, group, phase)

    @property
    def buffers(self) -> list[Buffer]:
        """The mbarriers."""
        return [self.barriers]

    @property
    def registers(self) -> list[Buffer]:
        """The registers that each thread keeps from tile to tile."""
        return [self.group, self.phase]

    @property
    def _each(self) -> int:
        """The number of threads in a group."""
        return self.role.threads // self.role.ping_pong_groups

    @property
    def _group(self) -> Expr:
        return tirx.BufferLoad(self.group, [i32(0)])

    def initialise(self) -> Stmt:
        """Return the initialisation, which one thread runs before anything else."""
        init = T.ptx.mbarrier.init.shared.b64

        def group(n: Expr) -> Stmt:
            return tirx.Evaluate(init(self._barrier(n), T.uint32(self._each)))

        return unrolled("t", self.role.ping_pong_groups, group)

    def start(self) -> Stmt:
        """Return the initialisation before the first tile: the first group has the token."""
        # Known to be the same for a warp, it leaves slots and descriptors in uniform registers.
        own = uniform(tirx.floordiv(self.thread - self.role.first, self._each))
        first = tirx.Cast("int32", tirx.EQ(self._group, i32(0)))
        return seq(
            tirx.BufferStore(self.group, own, [i32(0)]),
            tirx.BufferStore(self.phase, first, [i32(0)]),
        )

    def wait(self, loop: str) -> Stmt:
        """Return the wait for the token to run ``loop``."""
        now = tirx.BufferLoad(self.phase, [i32(0)])
        wait = tirx.Evaluate(T.cuda.mbarrier_wait(self._barrier(self._group), now))
        flip = tirx.BufferStore(self.phase, tirx.bitwise_xor(now, i32(1)), [i32(0)])
        return seq(_told("wait", loop, wait), flip)

    def pass_on(self, loop: str) -> Stmt:
        """Return the pass of the token to the next group, after the last wgmma of ``loop``."""
        following = tirx.floormod(self._group + 1, self.role.ping_pong_groups)
        arrive = tirx.Evaluate(T.ptx.mbarrier.arrive.shared.b64(self._barrier(following)))
        return _told("release", loop, arrive)

    def taken(self, tiles: Any, mine: Stmt, skipped: Stmt) -> Stmt:
        """Return the body of the loop ``tiles``: ``mine`` in each group's own, else ``skipped``."""
        tile = tiles.loop_var - tiles.min
        own = tirx.EQ(tirx.floormod(tile, self.role.ping_pong_groups), self._group)
        return tirx.IfThenElse(own, mine, skipped)

    def _barrier(self, group: Expr) -> Expr:
        return T.address_of(tirx.BufferLoad(self.barriers, [group, i32(0)]))


def check_ping_pong(body: Stmt, loops: list[Any]) -> None:
    """Raise LoweringError unless ``runs_by_tile`` holds of the only one of ``loops``."""
    if len(loops) != 1 or not runs_by_tile(body, loops[0]):
        raise LoweringError("role.ping_pong")


def _told(kind: Literal["wait", "release"], loop: str, stmt: Stmt) -> Stmt:
    """Return ``stmt`` with its origin."""
    op = Op(TOKEN, "wait") if kind == "wait" else Op(TOKEN, added=(kind,))
    return with_origin(Origin(op=op, kind=kind, block=loop, role=CONSUMER), stmt)
