#!/usr/bin/env python3
"""What the reference's encoders make of hard blocks: the fixtures tests/data/quant/enc/hard.f32 and hard/TYPE.blk.

  stock_blocks.py FOLDER                                   FOLDER: tests/data/quant/enc

Each super-block has its own kind of weights. Types that cannot be encoded without an importance matrix are left out.
"""
import array
import ctypes as C
import os
import random
import sys

from reference import Reference

TYPES = dict(q4_0=2, q4_1=3, q5_0=6, q5_1=7, q8_0=8, q2_k=10, q3_k=11, q4_k=12, q5_k=13, q6_k=14, iq3_xxs=18, iq4_nl=20, iq3_s=21,
             iq2_s=22, iq4_xs=23, tq1_0=34, tq2_0=35, mxfp4=39, nvfp4=40)
COLUMNS = 256


def kinds(r):
    n = r.gauss
    yield lambda i: n(0, 0.02)
    yield lambda i: n(0, 1) if r.randrange(8) == 0 else 0.0               # many zeros
    yield lambda i: (r.randrange(9) - 4) / 4                              # ties
    yield lambda i: abs(n(0, 1)) + 0.1                                    # one sign
    yield lambda i: -abs(n(0, 1)) - 3                                     # the other, far from zero
    yield lambda i: n(0, 50) if r.randrange(64) == 0 else n(0, 0.01)      # outliers
    yield lambda i: n(0, 1) * 2.0 ** (i // 16 - 12)                       # sub-blocks of very unequal size
    yield lambda i: n(0, 1) * 10.0 ** -(i // 16 + 2)                      # down to where sums underflow
    yield lambda i: n(0, 1) * 10.0 ** (i // 64)                           # and large ones
    yield lambda i: (r.randrange(3) - 1) * 0.7                            # ternary
    yield lambda i: r.uniform(-1, 1)
    yield lambda i: 0.0
    yield lambda i: 0.0 if i // 32 % 3 == 1 else n(0, 1)                  # zero sub-blocks beside others


def main():
    folder = sys.argv[1]
    r = random.Random(7)
    values = array.array('f', [make(i) for make in kinds(r) for i in range(COLUMNS)])
    os.makedirs(folder + '/hard', exist_ok=True)
    with open(folder + '/hard.f32', 'wb') as f:
        values.tofile(f)
    chunk = Reference().base.ggml_quantize_chunk
    chunk.restype, chunk.argtypes = C.c_size_t, [C.c_int, C.c_void_p, C.c_void_p] + [C.c_int64] * 3 + [C.c_void_p]
    out = C.create_string_buffer(8 * len(values))
    for name, kind in TYPES.items():
        size = chunk(kind, values.buffer_info()[0], out, 0, len(values) // COLUMNS, COLUMNS, None)
        with open(f'{folder}/hard/{name}.blk', 'wb') as f:
            f.write(out.raw[:size])


main()
