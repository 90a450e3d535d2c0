"""Loops in machine code, counted by hand in what the disassemblers print, and in what nvcc makes."""

from __future__ import annotations

import textwrap

import pytest

from pipeliner.toolchain import nvcc
from pipeliner.toolchain.machine_code import LoopCode, longest_loop

NVDISASM = """
    .section .text.small,"ax",@progbits
    /*0000*/  MOV R1, c[0x0][0x28] ;
.L_x_0:
    /*0010*/  IADD3 R1, R1, 0x1, RZ ;
    /*0020*/  @P0 BRA `(.L_x_0) ;
    .section .text.large,"ax",@progbits
    /*0000*/  S2R R0, SR_TID.X ;
.L_x_1:
    /*0010*/  LDS.128 R4, [R0] ;
    /*0020*/  FFMA R8, R2, R4, R6 ;
    /*0030*/  FFMA R9, R2.reuse, R4, R7 ;
    /*0040*/  FFMA R10, R2, R6, R12 ;
    /*0050*/  FFMA R11, -R3, R5, R13 ;
    /*0060*/  FFMA R11, R3, 2, R13 ;
    /*0070*/  @!P1 STL [R1], R8 ;
    /*0080*/  @P0 BRA `(.L_x_1) ;
    /*0090*/  EXIT ;
.L_x_2:
    /*00a0*/  BRA `(.L_x_2) ;
"""

CUOBJDUMP = """
\t\tFunction : small
        /*0000*/                   MOV R1, c[0x0][0x28] ;             /* 0x00000a0000017a02 */
        /*0010*/                   IADD3 R1, R1, 0x1, RZ ;            /* 0x0000000101017810 */
        /*0020*/               @P0 BRA 0x10 ;                         /* 0xffffffe000000947 */
\t\tFunction : large
        /*0000*/                   HMMA.16816.F32 R4, R8, R2, R4 ;    /* 0x000000020804723c */
        /*0010*/                   HMMA.16816.F32 R4, R8, R6, R4 ;    /* 0x000000060804723c */
        /*0020*/                   LDL R3, [R1] ;                     /* 0x0000000001037983 */
        /*0030*/              @!P0 BRA 0x0 ;                          /* 0xffffffc000008947 */
"""


def test_a_loop_is_what_a_branch_goes_back_over() -> None:
    found = longest_loop(NVDISASM)
    assert found == LoopCode(instructions=8, multiplies=5, conflicts=2, spills=1)


def test_what_cuobjdump_prints_is_read_too() -> None:
    assert longest_loop(CUOBJDUMP) == LoopCode(instructions=4, tensor=2, spills=1)


def test_there_may_be_no_loop() -> None:
    assert longest_loop("/*0000*/ EXIT ;") is None


@pytest.mark.parametrize(
    ("operands", "waits"),
    [
        ("R2, R4, R6", True),
        ("R3, R5, R7", True),
        ("R2, R4, R7", False),  # the third lies in the other bank
        ("R2, R4, RZ", False),  # two registers are read at once
        ("-R2, |R4|, R6", True),
    ],
)
def test_three_operands_of_one_bank_wait(operands: str, waits: bool) -> None:
    code = f".L_x_0:\n/*0000*/ FFMA R0, {operands} ;\n/*0010*/ BRA `(.L_x_0) ;\n"
    found = longest_loop(code)
    assert found is not None
    assert found.conflicts == waits


def test_an_operand_that_is_kept_is_not_read_again() -> None:
    kept = ".L_x_0:\n/*0000*/ FFMA R0, R2.reuse, R4, R7 ;\n/*0010*/ FFMA R1, R2, R4, R6 ;\n"
    other = kept.replace("FFMA R1, R2, R4, R6", "FFMA R1, R4, R2, R6")  # in another place
    end = "/*0020*/ BRA `(.L_x_0) ;\n"
    assert longest_loop(kept + end) == LoopCode(3, multiplies=2)
    assert longest_loop(other + end) == LoopCode(3, multiplies=2, conflicts=1)


SOURCE = textwrap.dedent(
    """
    extern "C" __global__ void dot(const float* a, const float* b, float* out, int n) {
      float sum = 0;
      #pragma unroll 4
      for (int i = 0; i < n; i += 4)
        for (int j = 0; j < 4; ++j) sum = fmaf(a[i + j], b[i + j], sum);
      *out = sum;
    }
    """
)


NO_CUOBJDUMP = pytest.mark.skipif(
    nvcc.find_tool("cuobjdump") is None, reason="cuobjdump, which reads fatbins, is not installed"
)


@pytest.mark.nvcc
@pytest.mark.parametrize("kind", ["cubin", pytest.param("fatbin", marks=NO_CUOBJDUMP)])
@pytest.mark.part(2)
def test_a_loop_that_nvcc_made(kind) -> None:
    made = nvcc.compile_cuda(SOURCE, "sm_80", kind)
    found = longest_loop(nvcc.disassemble(made.data, kind))
    assert found is not None
    assert found.multiplies % 4 == 0  # whole iterations, however many nvcc put into one
    assert found.multiplies >= 4
    assert found.instructions >= 3 * found.multiplies  # two loads and a multiply-add each
    assert found.tensor == found.spills == 0
