#!/usr/bin/env python3
"""One model out of several: mix.py OUT.gguf A.gguf B.gguf ...

All inputs are models of one shape in different types. The result has the metadata of A and, in turn, a quantized matrix of
A, the next one of B, and so on (experts by themselves): types differ within each layer. A weight's .scale comes with it.
"""
import struct
import sys

SCALARS = {0: 'B', 1: 'b', 2: 'H', 3: 'h', 4: 'I', 5: 'i', 6: 'f', 7: '?', 10: 'Q', 11: 'q', 12: 'd'}
STRING, ARRAY = 8, 9


class Reader:
    """Positions of a file's metadata and tensors; little-endian version 3."""

    def __init__(self, path):
        self.data = open(path, 'rb').read()
        self.at = 4
        version, tensors, keys = self.take('<IQQ')
        assert self.data[:4] == b'GGUF' and version == 3, path
        begin = self.at
        for _ in range(keys):
            self.string()
            self.value(self.take('<I')[0])
        self.n_keys, self.metadata = keys, self.data[begin:self.at]
        found = []
        for _ in range(tensors):
            name = self.string()
            dims = self.take('<%dQ' % self.take('<I')[0])
            found.append((name, dims, *self.take('<IQ')))
        start = -(-self.at // 32) * 32
        ends = sorted(t[3] for t in found) + [len(self.data) - start]
        self.tensors = {}
        for name, dims, kind, offset in found:
            end = ends[ends.index(offset) + 1]
            self.tensors[name] = (dims, kind, self.data[start + offset:start + end])

    def take(self, form):
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values

    def string(self):
        n, = self.take('<Q')
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def value(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            inner, n = self.take('<IQ')
            for _ in range(n):
                self.value(inner)
        else:
            self.take('<' + SCALARS[kind])


def write(path, n_keys, metadata, tensors):
    head, body = [], bytearray()
    for name, (dims, kind, data) in tensors:
        head.append(struct.pack('<Q', len(name)) + name.encode() + struct.pack('<I%dQ' % len(dims), len(dims), *dims)
                    + struct.pack('<IQ', kind, len(body)))
        body += data + bytes(-len(data) % 32)
    out = b'GGUF' + struct.pack('<IQQ', 3, len(tensors), n_keys) + metadata + b''.join(head)
    with open(path, 'wb') as file:
        file.write(out + bytes(-len(out) % 32) + body)


def main():
    out, *paths = sys.argv[1:]
    models = [Reader(path) for path in paths]
    tensors, turns = [], {True: 0, False: 0}  # of experts, and of the others
    for name, plain in models[0].tensors.items():
        if name.endswith('.scale'):
            continue
        if any(m.tensors[name][1] != plain[1] for m in models):
            experts = '_exps.' in name
            source = models[turns[experts] % len(models)]
            turns[experts] += 1
        else:
            source = models[0]
        tensors.append((name, source.tensors[name]))
        scale = name.removesuffix('.weight') + '.scale'
        if scale in source.tensors:
            tensors.append((scale, source.tensors[scale]))
    write(out, models[0].n_keys, models[0].metadata, tensors)


main()
