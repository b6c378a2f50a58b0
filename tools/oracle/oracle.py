#!/usr/bin/env python3
"""Logits, tokens, intermediate tensors, quantized files and speed of stock llama.cpp, to compare Moetier with.

  npm install --prefix DIR node-llama-cpp@3.22.1 @node-llama-cpp/linux-x64@3.22.1 --ignore-scripts --omit=optional
  export ORACLE_LIB=DIR/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64

  oracle.py logits   MODEL TOK,TOK,... -o OUT.f32 [--step] [--first N]   positions (from N on) x vocabulary, float32
  oracle.py spread   MODEL TOK,TOK,... [--first N]    how far the reference differs from itself between its own paths
  oracle.py generate MODEL TOK,TOK,... -n N           greedy tokens
  oracle.py dump     MODEL TOK,TOK,... -o OUT.json --match NAME,NAME [--step]
                     intermediate tensors whose graph name contains NAME (ffn_moe_topk, ffn_moe_out, l_out, ...)
  oracle.py compare  A.f32 B.f32 POSITIONS            mean KL, largest relative difference, equal argmax
  oracle.py tokenize MODEL TEXTFILE [--special]       ids as a JSON array
  oracle.py quantize IN OUT TYPE [--pure]             f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 q4_k_m q6_k iq4_nl mxfp4_moe ...
  oracle.py bench    MODEL -p P -n N -r R [--depth D] [--apart]
                     JSON: prompt_tok_s and decode_tok_s, median, min, max, samples; --apart decodes without the prompt before it
  oracle.py batched  MODEL -n N -r R --sequences S [--depth D]
                     the same of S sequences that decode together, a row of each in every batch; speeds are of all of them

The default is exact mode: f32 KV (--kv), no flash attention (--fa 0), no repacking (--repack 0), one thread. It is bit-equal from
run to run.
"""
import argparse
import array
import json
import math
import resource
import statistics
import sys
import time

from reference import Reference


def softmax_log(row):
    top = max(row)
    return top + math.log(sum(math.exp(x - top) for x in row))


def kl(p, q):
    zp, zq = softmax_log(p), softmax_log(q)
    return sum(math.exp(x - zp) * ((x - zp) - (y - zq)) for x, y in zip(p, q))


def argmax(row):
    return max(range(len(row)), key=row.__getitem__)


def compare(a, b):
    top = max(abs(x) for row in a for x in row)
    worst = max(abs(x - y) for p, q in zip(a, b) for x, y in zip(p, q))
    return dict(kl=sum(map(kl, a, b)) / len(a), rel=worst / top,
                argmax=sum(argmax(p) == argmax(q) for p, q in zip(a, b)), positions=len(a))


def spread(ref, model, tokens, first):
    exact = ref.logits(model, tokens, step=True, first=first)
    return dict(prompt=compare(exact, ref.logits(model, tokens, first=first)),
                defaults=compare(exact, ref.logits(model, tokens, step=True, repack=1, first=first, kv='f16', fa=-1)))


def read_rows(path, positions):
    with open(path, 'rb') as f:
        flat = array.array('f', f.read())
    width = len(flat) // positions
    return [flat[i * width:(i + 1) * width] for i in range(positions)]


def generate(ref, model, tokens, n, options):
    context = ref.context(ref.load(model), **options)
    ref.feed(context, tokens, 0, 'last')
    out, row = [], len(tokens) - 1
    for position in range(len(tokens), len(tokens) + n):
        out.append(argmax(ref.row(context, row)))
        ref.feed(context, out[-1:], position)
        row = 0
    return out


def stats(samples):
    return dict(median=statistics.median(samples), min=min(samples), max=max(samples), samples=samples)


def bench(ref, model, a):
    length = max(4096, (a.depth + a.p + a.n + 255) // 256 * 256)
    t0 = time.perf_counter()
    loaded = ref.load(model, a.mmap, a.repack)
    load_seconds = time.perf_counter() - t0
    context = ref.context(loaded, length, 'f16', -1, a.threads, a.ubatch)
    tokens = [(i * 7919 + 13) % (ref.n_vocab - 1) for i in range(a.depth + a.p + a.n)]
    memory, prompt, decode = ref.lib.llama_get_memory(context), [], []
    if a.depth:
        ref.feed(context, tokens[:a.depth], 0, 'last')
        ref.lib.llama_synchronize(context)
    for run in range(a.r + 1):
        if not ref.lib.llama_memory_seq_rm(memory, 0, a.depth, -1):
            sys.exit('oracle: the positions after the depth cannot be removed')
        t0 = time.perf_counter()
        if a.p:
            ref.feed(context, tokens[a.depth:a.depth + a.p], a.depth, 'last')
            ref.lib.llama_synchronize(context)
        prompt_end = t1 = time.perf_counter()
        first = a.depth + a.p
        if a.apart:  # as moetier bench does
            ref.lib.llama_memory_seq_rm(memory, 0, a.depth, -1)
            first, t1 = a.depth, time.perf_counter()
        for i in range(first, first + a.n):
            ref.feed(context, tokens[i:i + 1], i, 'last')
            ref.lib.llama_synchronize(context)
        if run:  # the first warms up
            prompt.append(a.p / (prompt_end - t0))
            decode.append(a.n / (time.perf_counter() - t1))
    return dict(prompt_tok_s=stats(prompt), decode_tok_s=stats(decode), threads=a.threads, repack=a.repack,
                load_seconds=load_seconds, peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def batched(ref, model, a):
    length = (a.depth + a.n + 1 + 255) // 256 * 256
    context = ref.context(ref.load(model, a.mmap, a.repack), length, 'f16', -1, a.threads, a.ubatch, sequences=a.sequences)
    memory, samples = ref.lib.llama_get_memory(context), []

    def token(i):
        return (i * 7919 + 13) % (ref.n_vocab - 1)

    def step(i):
        ref.decode(context, [(token(i * a.sequences + s), a.depth + i, s, True) for s in range(a.sequences)])
        ref.lib.llama_synchronize(context)
    for s in range(a.sequences):
        if a.depth:
            ref.decode(context, [(token(i), i, s, i + 1 == a.depth) for i in range(a.depth)])
    for run in range(a.r + 1):
        for s in range(a.sequences):
            if not ref.lib.llama_memory_seq_rm(memory, s, a.depth, -1):
                sys.exit('oracle: the positions after the depth cannot be removed')
        step(0)
        t0 = time.perf_counter()
        for i in range(1, a.n + 1):
            step(i)
        if run:  # the first warms up
            samples.append(a.n * a.sequences / (time.perf_counter() - t0))
    return dict(decode_tok_s=stats(samples), sequences=a.sequences, depth=a.depth, threads=a.threads, repack=a.repack)


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('command', choices='logits spread generate dump compare tokenize quantize bench batched'.split())
    p.add_argument('files', nargs='+')
    p.add_argument('-o')
    p.add_argument('--match', default='l_out')
    for name, default in (('-p', 128), ('-n', 32), ('-r', 3), ('--depth', 0), ('--fa', 0), ('--repack', 0), ('--mmap', 1), ('--threads', 1),
                          ('--ubatch', 512), ('--sequences', 1), ('--first', 0)):
        p.add_argument(name, type=int, default=default)
    p.add_argument('--kv', default='f32')
    for name in ('--step', '--special', '--pure', '--apart'):
        p.add_argument(name, action='store_true')
    return p.parse_args()


def main():
    a = arguments()
    if a.command in ('logits', 'dump') and not a.o:
        sys.exit('oracle: -o is needed')
    if a.command == 'compare':
        n = int(a.files[2])
        print(json.dumps(compare(read_rows(a.files[0], n), read_rows(a.files[1], n))))
        return
    ref, model = Reference(), a.files[0]
    options = dict(kv=a.kv, fa=a.fa, threads=a.threads, ubatch=a.ubatch)
    if a.command in ('logits', 'spread', 'generate', 'dump'):
        tokens = [int(x) for x in a.files[1].split(',')]
    if a.command == 'logits':
        rows = ref.logits(model, tokens, a.step, a.repack, a.first, **options)
        with open(a.o, 'wb') as out:
            for row in rows:
                row.tofile(out)
        print(json.dumps(dict(positions=len(rows), vocab=ref.n_vocab, argmax=list(map(argmax, rows)))))
    elif a.command == 'spread':
        print(json.dumps(spread(ref, model, tokens, a.first)))
    elif a.command == 'dump':
        found = []
        ref.logits(model, tokens, a.step, a.repack, watch=ref.watcher(a.match.split(','), found), **options)
        with open(a.o, 'w') as out:
            json.dump(found, out)
        print(len(found), 'tensors,', sorted({x['name'] for x in found})[:12])
    elif a.command == 'generate':
        print(json.dumps(generate(ref, model, tokens, a.n, options)))
    elif a.command == 'tokenize':
        with open(a.files[1], 'rb') as f:
            print(json.dumps(ref.tokenize(model, f.read(), a.special)))
    elif a.command == 'quantize':
        sys.exit(ref.quantize(model, a.files[1], a.files[2], a.pure))
    else:
        print(json.dumps((batched if a.command == 'batched' else bench)(ref, model, a)))


main()
