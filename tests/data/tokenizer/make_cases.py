#!/usr/bin/env python3
"""Makes the tokenizer fixtures beside this file: small vocabularies, and the ids that stock llama.cpp gives for texts.

  make_cases.py TOK_JSON TEXT

TOK_JSON is the demo model's tokenizer ({"vocab": [...], "merges": [...]}, byte-level), TEXT a UTF-8 text to learn a small SentencePiece-like
vocabulary from. ORACLE_LIB names the folder with libllama (any llama.cpp release of its C API with llama_model_load_from_file).

  fairytale.gguf   byte-level BPE, the demo model's own
  mini-spm.gguf    model llama: control, user-defined and byte tokens, characters, and pieces scored in the order they were learnt
  mini-gemma4.gguf the same pieces as merges over raw UTF-8, model gemma4
  cases.json       per vocabulary: text, add_special, parse_special, ids; and per pre-tokenizer the ids over the vocabulary of all byte pairs that
                   pair_vocabulary() below defines (its merges show nearly every border between words)
"""
import collections, ctypes as C, glob, json, os, re, struct, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
U32, F32, BOOL, STR, ARR, I32 = 4, 6, 7, 8, 9, 5
PRES = ('default gpt-2 starcoder llama3 dbrx glm4 qwen2 qwen35 gpt-4o deepseek-llm deepseek-coder deepseek-v3 bailingmoe tekken kimi-k2').split()

TEXTS = ["", " ", "   ", "\n", "\n\n\n", "\t", " \t\n ", "a", "Hello, World!", " Hello  World ", "Once upon a time there was a king,\nwho had three sons.\n\n  The youngest...",
  "I'm sure you'll say they've gone; she'd say WE'RE here, it'S 'tis", "'Twas the dog's 'ears' ' s", "1 12 123 1234 12345 3.14 1,000,000", "x1y22z333 4444a", "camelCase ABCdef XMLHttpRequest aB Ab",
  "ПРИВЕТ мир, Что Делаешь?", "Äpfel öffnen ÀÉÎ straße", "你好，世界！我想在apple工作1314151天～", "日本語のカタカナとひらがな。々〇", "한국어 텍스트 입니다", "हिन्दी में पाठ", "العَرَبِيَّة ١٢٣", "ภาษาไทย", "e\u0301\u0301 a\u030a \u0301x",
  "🚀 😶‍🌫️ 👩‍👩‍👧 🇩🇪🩷", "foo/bar//baz\\n \r\n \r\n\n/x", "a\u3000b \u3000 \u3000\u3000c\u00a0d\u2028e\u0085f\u1680", "\u180e\u200b\ufeffx\u200d", "-----=====+++<<<>>>|||~~~^^^", "def f(x):\n    return x**2  # ½²Ⅷ\n",
  "!?...,,;;::«»„“”", "$100 €200 £3", "a_b __init__ _x", "  leading and trailing  ", "tab\t\ttab\t x", "\x00\x01\x7f", "ﬁ ǅ ʰ ª º", "𝔘𐐀 \U0001e043 \U00011f05", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa", "                         x", "\n \n  \n   \n", "It\u2019s \u2018q\u2019", "a 'b 'Sc 'LLd", "\u2581 literal \u2581\u2581"]
SPECIAL = ["<s>Hello</s>World", "a<|user|>b <|user|> c", "<tool> x</tool>", "<too<tool>l>", "<|user", "<unk> <s", "<0x41><0x0A>", "  <s>  x", "<|sys|><|sys|>\n", "<tag><tag>>", "x<tag>"]


def stand_ins():
    keep = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in keep]
    return {**{b: chr(b) for b in keep}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


def pair_vocabulary(pre):
    """Tokens: 256 bytes, then all pairs ab at 256 + 256 a + b. Merge i is the pair number (40503 i + 12345) mod 65536."""
    s = stand_ins()
    order = [(40503 * i + 12345) % 65536 for i in range(65536)]
    tokens = [s[b] for b in range(256)] + [s[p >> 8] + s[p & 255] for p in range(65536)]
    return bpe(tokens, [1] * len(tokens), [s[p >> 8] + ' ' + s[p & 255] for p in order], pre)


def bpe(tokens, types, merges, pre, **more):
    return {'general.architecture': (STR, 'llama'), 'tokenizer.ggml.model': (STR, 'gpt2'), 'tokenizer.ggml.pre': (STR, pre), 'tokenizer.ggml.tokens': (ARR, (STR, tokens)),
            'tokenizer.ggml.token_type': (ARR, (I32, types)), 'tokenizer.ggml.merges': (ARR, (STR, merges)), **more}


def write_gguf(path, keys):
    text = lambda t: struct.pack('<Q', len(t.encode())) + t.encode()
    out = [b'GGUF', struct.pack('<IQQ', 3, 0, len(keys))]
    scalar = {U32: 'I', F32: 'f', BOOL: '?', I32: 'i'}
    for key, (kind, value) in keys.items():
        out.append(text(key) + struct.pack('<I', kind))
        if kind == STR: out.append(text(value))
        elif kind != ARR: out.append(struct.pack('<' + scalar[kind], value))
        else:
            element, values = value
            out.append(struct.pack('<IQ', element, len(values)))
            out.append(b''.join(map(text, values)) if element == STR else struct.pack(f'<{len(values)}{scalar[element]}', *values))
    open(path, 'wb').write(b''.join(out))


def learn(text, count):
    """Byte-pair learning over characters of words that begin with U+2581; returns the merged pairs in order."""
    words = collections.Counter(re.findall(r'▁?[^▁]+', text.replace(' ', '▁')))
    words = {tuple(w): n for w, n in words.items() if len(w) < 20 and '\n' not in w}
    merges = []
    for _ in range(count):
        pairs = collections.Counter()
        for w, n in words.items():
            for p in zip(w, w[1:]): pairs[p] += n
        best = max(sorted(pairs), key=lambda p: pairs[p])
        merges.append(best)
        new = {}
        for w, n in words.items():
            out, i = [], 0
            while i < len(w):
                if w[i:i + 2] == best: out.append(w[i] + w[i + 1]); i += 2
                else: out.append(w[i]); i += 1
            new[tuple(out)] = new.get(tuple(out), 0) + n
        words = new
    return merges


def mini_vocabularies(text):
    merges = [p for p in learn(text[:60000], 500)] + [('▁', '▁'), ('▁▁', '▁▁'), ('\n', '\n')]
    chars = sorted({c for p in merges for part in p for c in part} | set('éü!?.,;'))
    pieces = list(dict.fromkeys(chars + [a + b for a, b in merges]))
    special = [('<unk>', 2), ('<s>', 3), ('</s>', 3)]
    added = [('<|user|>', 3), ('<|sys|>', 3), ('<tool>', 4), ('</tool>', 4), ('<too', 4), ('<tag>', 4), ('<tag>>', 4)]
    tokens = [t for t, _ in special] + ['<0x%02X>' % b for b in range(256)] + pieces + [t for t, _ in added if t not in pieces]
    types = [k for _, k in special] + [6] * 256 + [1] * len(pieces) + [k for t, k in added if t not in pieces]
    rank = {a + b: -float(i) for i, (a, b) in enumerate(merges)}
    scores = [rank.get(t, -1e6) for t in tokens]
    ids = {f'tokenizer.ggml.{n}_token_id': (U32, i) for n, i in (('unknown', 0), ('bos', 1), ('eos', 2))}
    common = {'tokenizer.ggml.tokens': (ARR, (STR, tokens)), 'tokenizer.ggml.token_type': (ARR, (I32, types)), **ids}
    spm = {'general.architecture': (STR, 'llama'), 'tokenizer.ggml.model': (STR, 'llama'), **common, 'tokenizer.ggml.scores': (ARR, (F32, scores))}
    gemma = {'general.architecture': (STR, 'llama'), 'tokenizer.ggml.model': (STR, 'gemma4'), **common, 'tokenizer.ggml.merges': (ARR, (STR, [a + ' ' + b for a, b in merges]))}
    return spm, gemma


class ModelParams(C.Structure):
    _fields_ = [('devices', C.c_void_p), ('overrides', C.c_void_p), ('n_gpu_layers', C.c_int32), ('split_mode', C.c_int), ('load_mode', C.c_int), ('lazy_mode', C.c_int), ('main_gpu', C.c_int32), ('tensor_split', C.c_void_p),
                ('progress', C.c_void_p), ('progress_data', C.c_void_p), ('kv_overrides', C.c_void_p)] + [(n, C.c_bool) for n in ('vocab_only', 'check_tensors', 'use_extra_bufts', 'no_host', 'no_alloc', 'load_mtp')]


class Reference:
    def __init__(self):
        folder = os.environ['ORACLE_LIB']
        load = lambda name: C.CDLL(sorted(x for x in glob.glob(f'{folder}/{name}*.so') if 'common' not in x)[0], C.RTLD_GLOBAL)
        load('libggml-base'); load('libggml.'); self.lib = load('libllama.')
        self.log = C.CFUNCTYPE(None, C.c_int, C.c_char_p, C.c_void_p)(lambda *_: None)
        self.lib.llama_log_set(self.log, None)
        self.lib.llama_model_default_params.restype = ModelParams
        self.lib.llama_model_load_from_file.restype = self.lib.llama_model_get_vocab.restype = C.c_void_p
        self.lib.llama_model_load_from_file.argtypes = [C.c_char_p, ModelParams]
        self.lib.llama_model_get_vocab.argtypes = self.lib.llama_model_free.argtypes = [C.c_void_p]
        self.lib.llama_tokenize.argtypes = [C.c_void_p, C.c_char_p, C.c_int32, C.c_void_p, C.c_int32, C.c_bool, C.c_bool]

    def ids(self, path, texts):
        params = self.lib.llama_model_default_params()
        params.vocab_only, params.n_gpu_layers = True, 0
        model = self.lib.llama_model_load_from_file(path.encode(), params)
        if not model: sys.exit(f'the reference cannot load {path}')
        vocab, out = self.lib.llama_model_get_vocab(model), []
        for text, add, parse in texts:
            raw = text.encode()
            buffer = (C.c_int32 * (len(raw) * 4 + 16))()
            out.append(list(buffer[:self.lib.llama_tokenize(vocab, raw, len(raw), buffer, len(buffer), add, parse)]))
        self.lib.llama_model_free(model)
        return out


def main():
    tok, text = json.load(open(sys.argv[1])), open(sys.argv[2], encoding='utf-8').read()
    ids = {f'tokenizer.ggml.{n}_token_id': (U32, tok['vocab'].index(t)) for n, t in (('bos', '<|endoftext|>'), ('eos', '<|endoftext|>'), ('padding', '<|pad|>'))}
    types = [3 if t.startswith('<|') else 1 for t in tok['vocab']]
    write_gguf(f'{HERE}/fairytale.gguf', bpe(tok['vocab'], types, tok['merges'], 'qwen2', **ids, **{'tokenizer.ggml.add_bos_token': (BOOL, True)}))
    spm, gemma = mini_vocabularies(text)
    write_gguf(f'{HERE}/mini-spm.gguf', spm)
    write_gguf(f'{HERE}/mini-gemma4.gguf', gemma)
    reference, cases = Reference(), {'vocabularies': {}, 'pretokenizers': {'texts': TEXTS, 'ids': {}}}
    for name, texts in (('fairytale', TEXTS + ['<|endoftext|>a<|endoftext|>']), ('mini-spm', TEXTS + SPECIAL), ('mini-gemma4', TEXTS + SPECIAL)):
        asked = [(t, add, parse) for t in texts for add in (False, True) for parse in ((False, True) if '<' in t else (True,)) if (parse or not add)]
        cases['vocabularies'][name] = [[*a, ids] for a, ids in zip(asked, reference.ids(f'{HERE}/{name}.gguf', asked))]
    for pre in PRES:
        with tempfile.NamedTemporaryFile(suffix='.gguf') as f:
            write_gguf(f.name, pair_vocabulary(pre))
            cases['pretokenizers']['ids'][pre] = reference.ids(f.name, [(t, False, False) for t in TEXTS])
    with open(f'{HERE}/cases.json', 'w', encoding='utf-8') as out:
        dump = lambda x: json.dumps(x, ensure_ascii=True, separators=(',', ':'))
        out.write('{"vocabularies":{\n' + ',\n'.join(f'{dump(n)}:[\n' + ',\n'.join(map(dump, c)) + ']' for n, c in cases['vocabularies'].items()) + '},\n"pretokenizers":{"texts":' + dump(TEXTS) + ',\n"ids":{\n' +
                  ',\n'.join(f'{dump(p)}:{dump(i)}' for p, i in cases['pretokenizers']['ids'].items()) + '}}}\n')


if __name__ == '__main__':
    main()
