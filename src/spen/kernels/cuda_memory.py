"""Loads and stores of the on-chip kernel: each number by the thread that works with it.

Triton gives neighbouring numbers to neighbouring threads, and then lays them out anew through
shared memory, where all warps wait for each other. For the few rows that take the places of
others at a time, that takes longer than it saves.
"""

# Triton reads these functions; its annotations describe neither its types nor its branches.
# ruff: noqa: RET505
# pyright: reportArgumentType=false

import triton
import triton.language as tl


@triton.jit
def fetched(pointer, mask, ASSEMBLY: tl.constexpr):
    """Load where the mask says so, and zeros elsewhere."""
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            """{
            .reg .pred on;
            setp.ne.b32 on, $2, 0;
            mov.b32 $0, 0;
            @on ld.global.b32 $0, [$1];
            }""",
            "=&f,l,r",
            [pointer.to(tl.int64), mask.to(tl.int32)],
            dtype=tl.float32,
            is_pure=False,
            pack=1,
        )
    else:
        return tl.load(pointer, mask=mask, other=0.0)


@triton.jit
def saved(pointer, x, mask, ASSEMBLY: tl.constexpr):
    """Store where the mask says so."""
    if ASSEMBLY:
        tl.inline_asm_elementwise(
            """{
            .reg .pred on;
            setp.ne.b32 on, $3, 0;
            @on st.global.b32 [$1], $2;
            mov.b32 $0, 0;
            }""",
            "=r,l,f,r",
            [pointer.to(tl.int64), x, mask.to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
    else:
        tl.store(pointer, x, mask=mask)


@triton.jit
def saved_count(pointer, x, mask, ASSEMBLY: tl.constexpr):
    """Store whole numbers, in 64 bits, where the mask says so."""
    if ASSEMBLY:
        tl.inline_asm_elementwise(
            """{
            .reg .pred on;
            .reg .b64 wide;
            setp.ne.b32 on, $3, 0;
            cvt.s64.s32 wide, $2;
            @on st.global.b64 [$1], wide;
            mov.b32 $0, 0;
            }""",
            "=r,l,r,r",
            [pointer.to(tl.int64), x, mask.to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
    else:
        tl.store(pointer, x.to(tl.int64), mask=mask)


@triton.jit
def announced(pointer, mask, ASSEMBLY: tl.constexpr):
    """Have the second-level cache fetch what will be loaded soon."""
    if ASSEMBLY:
        tl.inline_asm_elementwise(
            """{
            .reg .pred on;
            setp.ne.b32 on, $2, 0;
            @on prefetch.global.L2 [$1];
            mov.b32 $0, 0;
            }""",
            "=r,l,r",
            [pointer.to(tl.int64), mask.to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
