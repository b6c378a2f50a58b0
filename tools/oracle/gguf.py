"""Writes GGUF v3 files with the standard library only: metadata, small vocabularies, and tensors of random numbers."""
import array
import math
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
FORMATS = {U8: 'B', I8: 'b', U16: 'H', I16: 'h', U32: 'I', I32: 'i', F32: 'f', BOOL: '?', U64: 'Q', I64: 'q', F64: 'd'}


def string(text):
    data = text.encode()
    return struct.pack('<Q', len(data)) + data


def value(kind, v):
    return string(v) if kind == STR else struct.pack('<' + FORMATS[kind], v)


class Gguf:
    """Collects keys and tensors, then writes them. Shapes are in GGUF order: the contiguous axis first."""

    def __init__(self):
        self.keys, self.tensors = [], []

    def add(self, key, kind, v):
        self.keys.append(string(key) + struct.pack('<I', kind) + value(kind, v))

    def array(self, key, kind, values):
        head = string(key) + struct.pack('<IIQ', ARR, kind, len(values))
        self.keys.append(head + b''.join(value(kind, v) for v in values))

    def tensor(self, name, shape, chunks, kind=0):
        """An F32 tensor, or I32 of kind 26; chunks() yields its bytes when the file is written."""
        self.tensors.append((name, list(shape), chunks, kind))

    def write(self, path, align=32):
        offset, infos = 0, []
        for name, shape, _, kind in self.tensors:
            infos.append(string(name) + struct.pack('<I%dQIQ' % len(shape), len(shape), *shape, kind, offset))
            offset += (4 * math.prod(shape) + align - 1) // align * align
        with open(path, 'wb') as f:
            f.write(b'GGUF' + struct.pack('<IQQ', 3, len(self.tensors), len(self.keys)))
            f.write(b''.join(self.keys) + b''.join(infos))
            f.write(b'\0' * (-f.tell() % align))
            for name, shape, chunks, _ in self.tensors:
                start = f.tell()
                for chunk in chunks():
                    f.write(chunk)
                assert f.tell() - start == 4 * math.prod(shape), name
                f.write(b'\0' * (-f.tell() % align))
            return f.tell()


def uniform(rng, shape, sigma, mean=0.0):
    """F32 values, uniform with the given standard deviation around the mean."""
    def chunks():
        left, step = math.prod(shape), sigma * math.sqrt(3.0) / 32768.0
        while left:
            n = min(left, 1 << 20)
            raw = array.array('h')
            raw.frombytes(rng.randbytes(2 * n))
            yield array.array('f', [x * step + mean for x in raw]).tobytes()
            left -= n
    return chunks


def constant(values, code='f'):
    return lambda: [array.array(code, values).tobytes()]


# --- vocabularies: learned from a few sentences, so that text makes ordinary tokens ---

TEXT = (
    'the quick brown fox jumps over the lazy dog. once upon a time there was a small engine that could run a large model '
    'on a small machine; it read the experts from the disk and kept the hot ones in memory. hello world, this is a test of '
    'the tokenizer. int main(void) { return 0; } the answer is 42 and the question is what do you get when you multiply six '
    'by nine? mixture of experts models route each token to a few experts. the router picks the top experts and the weights '
    'are summed. ')
CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def byte_characters():
    """Byte-level BPE writes every byte as a printable character."""
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    rest = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(rest)}, plain + rest


def bpe_vocabulary(n_merges):
    characters, _ = byte_characters()
    tokens, merges, words = [characters[b] for b in range(256)], [], {}
    for i, word in enumerate(TEXT.split(' ')):
        if word:
            key = tuple(characters[b] for b in ((' ' if i else '') + word).encode())
            words[key] = words.get(key, 0) + 1
    while len(merges) < n_merges:
        counts = {}
        for word, n in words.items():
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + n
        if not counts:
            break
        best = max(counts.items(), key=lambda x: (x[1], x[0]))[0]
        merges.append(' '.join(best))
        tokens.append(''.join(best))
        words = {merged(word, best): n for word, n in words.items()}
    return tokens, merges


def merged(word, pair):
    out, i = [], 0
    while i < len(word):
        if word[i:i + 2] == pair:
            out.append(''.join(pair))
            i += 2
        else:
            out.append(word[i])
            i += 1
    return tuple(out)


def add_bpe(g, pre, specials, n_vocab, bos, eos, template=None, add_bos=None, n_merges=220):
    tokens, merges = bpe_vocabulary(n_merges)
    kinds = [1] * len(tokens) + [3] * len(specials)
    tokens += specials
    while len(tokens) < n_vocab:
        tokens.append('[PAD%d]' % len(tokens))
        kinds.append(5)
    assert len(tokens) == n_vocab, len(tokens)
    g.add('tokenizer.ggml.model', STR, 'gpt2')
    g.add('tokenizer.ggml.pre', STR, pre)
    g.array('tokenizer.ggml.tokens', STR, tokens)
    g.array('tokenizer.ggml.token_type', I32, kinds)
    g.array('tokenizer.ggml.merges', STR, merges)
    g.add('tokenizer.ggml.bos_token_id', U32, tokens.index(bos))
    g.add('tokenizer.ggml.eos_token_id', U32, tokens.index(eos))
    g.add('tokenizer.ggml.padding_token_id', U32, tokens.index(eos))
    if add_bos is not None:
        g.add('tokenizer.ggml.add_bos_token', BOOL, add_bos)
    if template:
        g.add('tokenizer.chat_template', STR, template)


def add_spm(g, n_vocab):
    tokens = ['<unk>', '<s>', '</s>'] + ['<0x%02X>' % i for i in range(256)]
    kinds, scores = [2, 3, 3] + [6] * 256, [0.0] * 259
    pieces = ['\u2581'] + [chr(c) for c in range(33, 127)]
    for token in bpe_vocabulary(220)[0][256:]:
        piece = token.replace('\u0120', '\u2581')
        if all(ord(c) < 127 or c == '\u2581' for c in piece) and piece not in pieces:
            pieces.append(piece)
    for i, piece in enumerate(pieces):
        if len(tokens) < n_vocab:
            tokens.append(piece)
            kinds.append(1)
            scores.append(-float(len(pieces) - len(piece) * 50 + i))
    while len(tokens) < n_vocab:
        tokens.append('[PAD%d]' % len(tokens))
        kinds.append(5)
        scores.append(-1e4)
    g.add('tokenizer.ggml.model', STR, 'llama')
    g.add('tokenizer.ggml.pre', STR, 'default')
    g.array('tokenizer.ggml.tokens', STR, tokens)
    g.array('tokenizer.ggml.scores', F32, scores)
    g.array('tokenizer.ggml.token_type', I32, kinds)
    g.add('tokenizer.ggml.bos_token_id', U32, 1)
    g.add('tokenizer.ggml.eos_token_id', U32, 2)
    g.add('tokenizer.ggml.unknown_token_id', U32, 0)
    g.add('tokenizer.ggml.add_bos_token', BOOL, True)
    g.add('tokenizer.ggml.add_eos_token', BOOL, False)
