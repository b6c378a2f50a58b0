#!/usr/bin/env python3
"""Which type the reference's quantizer gives to each tensor: the fixture tests/data/quant/stock_types.json.

  stock_types.py OUT.json [--pure]

Models of several shapes are made (all zeros: only names and sizes matter) and quantized in dry runs, without an importance matrix.
A tensor's types are runs over its layers: "q4_k*2 q3_k" is q4_k in two, q3_k in the rest; beside them stand the file types that choose
so. Tensors that every file type keeps as they are have none.
"""
import argparse
import ctypes as C
import json
import math
import os
import re
import tempfile

import ggufgen
from reference import FILE_TYPES, Reference

WIDE = 'D=256,F=256,hd=64,V=512,'
MODELS = [('qwen3moe', WIDE + 'L=24,E=16,H=8,KV=2', ''),      # four heads share a value matrix
          ('qwen2moe', WIDE + 'L=16,E=16,H=4,KV=2', ''),      # two heads do; with a shared expert
          ('qwen3moe', WIDE + 'L=16,E=8,H=4,KV=2', 'tied'),   # eight experts
          ('llama', WIDE + 'L=16,E=3,H=4,KV=4', ''),          # few experts
          ('llama-dense', WIDE + 'L=80,H=8,KV=1,hd=32', ''),        # the layers of a 70B
          ('llama-dense', WIDE + 'L=80,H=4,KV=4', 'tied'),    # and of a 65B
          ('qwen2', WIDE + 'L=9,H=4,KV=1', 'fused-qkv'),
          ('qwen3next', WIDE + 'L=16,E=16,H=4,KV=1', ''),
          ('deepseek2', 'L=17,E=16', 'lite,unfolded'),        # rows of many lengths
          ('nemotron_h_moe', 'E=16', ''),                # numbers of heads by layer
          ('gemma4', 'L=9,E=16', ''), ('gpt-oss', 'L=9,E=32', '')]
LINE = re.compile(r'^\[ *\d+/ *\d+\] +(\S+) +- \[([\d, ]+)\], type = +\S+ size = +[\d.]+ MiB(?: -> +[\d.]+ MiB \((\S+)\))?', re.M)


def zeros(_rng, shape, _sigma, _mean=0.0):
    return lambda: iter([bytes(4 * math.prod(shape))])


def dry_run(ref, model, kind, pure):
    """Name, shape and type (None: kept) of every tensor."""
    q = ref.lib.llama_model_quantize_default_params()
    q.nthread, q.ftype, q.pure, q.dry_run = 1, FILE_TYPES[kind], pure, True
    words = []
    log = C.CFUNCTYPE(None, C.c_int, C.c_char_p, C.c_void_p)(lambda _level, text, _data: words.append(text.decode(errors='replace')))
    ref.lib.llama_log_set(log, None)
    result = ref.lib.llama_model_quantize(model.encode(), (model + '.none').encode(), C.byref(q))
    ref.lib.llama_log_set(ref.quiet, None)
    assert result == 0, ''.join(words)
    found = [(n, [int(x) for x in s.split(',')], (t or '-').lower()) for n, s, t in LINE.findall(''.join(words))]
    assert found, ''.join(words)
    return found


def runs(values):
    out = []
    for value in values:
        if out and out[-1][0] == value:
            out[-1][1] += 1
        else:
            out.append([value, 1])
    return ' '.join(v if n == 1 or i == len(out) - 1 else f'{v}*{n}' for i, (v, n) in enumerate(out))


def runs_of_layers(layers):
    """[first, last] of every run of layers."""
    out = []
    for layer in sorted(layers):
        if out and out[-1][1] == layer - 1:
            out[-1][1] = layer
        else:
            out.append([layer, layer])
    return out


def describe(ref, path, arch, sizes, options, pure):
    shape = {k: int(v) for k, v in (x.split('=') for x in sizes.split(','))}
    builder = ggufgen.Builder(arch, 1, shape, {x for x in options.split(',') if x})
    builder.build().write(path)
    s, tensors = builder.s, {}
    for kind in FILE_TYPES:
        if kind == 'f32':  # the models are
            continue
        for name, dims, to in dry_run(ref, path, kind, pure):
            layer = re.match(r'blk\.(\d+)\.', name)
            entry = tensors.setdefault((re.sub(r'^blk\.\d+\.', 'blk.%.', name), tuple(dims)), dict(layers=[], types={}))
            if layer and int(layer[1]) not in entry['layers']:
                entry['layers'].append(int(layer[1]))
            entry['types'].setdefault(kind, []).append((int(layer[1]) if layer else 0, to))
    out = []
    for (name, dims), entry in tensors.items():
        types = {}
        for kind, values in entry['types'].items():
            types.setdefault(runs([t for _, t in sorted(values)]), []).append(kind)
        chosen = {} if list(types) == ['-'] else {t: ' '.join(kinds) for t, kinds in types.items()}
        out.append(dict(name=name, shape=list(dims), layers=runs_of_layers(entry['layers']), types=chosen))
    return dict(architecture=builder.arch, layers=s['L'], heads=s['H'], kv_heads=s['KV'], experts=s['E'], tensors=out)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('out')
    p.add_argument('--pure', action='store_true')
    a = p.parse_args()
    ggufgen.uniform = zeros
    ref = Reference()
    with tempfile.TemporaryDirectory() as folder:
        models = [describe(ref, os.path.join(folder, 'model.gguf'), *m, a.pure) for m in MODELS]
    with open(a.out, 'w') as f:
        f.write('[' + ',\n'.join(json.dumps(m, separators=(',', ':')).replace('},{', '},\n {') for m in models) + ']\n')


main()
