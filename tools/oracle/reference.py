"""Stock llama.cpp as an independent reference, called through ctypes: the prebuilt CPU library of an npm package (see oracle.py).

The structures are those of llama.cpp v0.5.0; their sizes are checked before use.
"""
import array
import ctypes as C
import glob
import os
import sys


def fields(kind, names):
    return [(name, kind) for name in names.split()]


class ModelParams(C.Structure):
    _fields_ = (fields(C.c_void_p, 'devices overrides') + fields(C.c_int32, 'n_gpu_layers') +
                fields(C.c_int, 'split_mode load_mode lazy_mode') + fields(C.c_int32, 'main_gpu') +
                fields(C.c_void_p, 'tensor_split progress progress_data kv_overrides') +
                fields(C.c_bool, 'vocab_only check_tensors use_extra_bufts no_host no_alloc load_mtp'))


class ContextParams(C.Structure):
    _fields_ = (fields(C.c_uint32, 'n_ctx n_batch n_ubatch n_seq_max n_rs_seq n_outputs_max n_outputs_max_per_seq') +
                fields(C.c_int32, 'n_threads n_threads_batch') +
                fields(C.c_int, 'ctx_type rope_scaling_type pooling_type attention_type flash_attn_type') +
                fields(C.c_float, 'freq_base freq_scale yarn_ext yarn_attn yarn_fast yarn_slow') +
                fields(C.c_uint32, 'yarn_orig') + fields(C.c_float, 'defrag') + fields(C.c_void_p, 'cb_eval cb_data') +
                fields(C.c_int, 'type_k type_v') + fields(C.c_void_p, 'abort abort_data') +
                fields(C.c_bool, 'embeddings offload_kqv no_perf op_offload swa_full kv_unified') +
                fields(C.c_void_p, 'samplers') + fields(C.c_size_t, 'n_samplers') + fields(C.c_void_p, 'ctx_other'))


class Batch(C.Structure):
    _fields_ = fields(C.c_int32, 'n_tokens') + fields(C.c_void_p, 'token embd pos n_seq_id seq_id logits')


class QuantParams(C.Structure):
    _fields_ = (fields(C.c_int32, 'nthread') + fields(C.c_int, 'ftype out_type embd_type') +
                fields(C.c_bool, 'allow_requantize quantize_output only_copy pure keep_split dry_run') +
                fields(C.c_void_p, 'imatrix kv tt prune') + fields(C.c_size_t, 'max_buf'))


FILE_TYPES = dict(f32=0, f16=1, q4_0=2, q4_1=3, q8_0=7, q5_0=8, q5_1=9, q2_k=10, q3_k_s=11, q3_k_m=12, q3_k_l=13, q4_k_s=14,
                  q4_k_m=15, q5_k_s=16, q5_k_m=17, q6_k=18, q2_k_s=21, iq3_xs=22, iq3_xxs=23, iq4_nl=25, iq3_s=26, iq3_m=27,
                  iq2_m=29, iq4_xs=30, bf16=32, tq1_0=36, tq2_0=37, mxfp4_moe=38)


def library_folder():
    inside = '/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64'
    here = os.path.dirname(os.path.abspath(__file__))
    for folder in [os.environ.get('ORACLE_LIB', '')] + [base + inside for base in ('.', '..', here)]:
        if folder and glob.glob(folder + '/libllama*.so'):
            return os.path.abspath(folder)
    sys.exit('oracle: no reference library; install node-llama-cpp and set ORACLE_LIB (see oracle.py --help)')


class Reference:
    """A loaded library. Exact mode (the defaults: f32 KV, no flash attention, no repacking) is bit-equal from run to run."""

    def __init__(self):
        self.folder = library_folder()
        self.base, self.ggml, self.lib = (self.open(n) for n in ('libggml-base', 'libggml.', 'libllama.'))
        self.quiet = C.CFUNCTYPE(None, C.c_int, C.c_char_p, C.c_void_p)(lambda *_: None)
        self.lib.llama_log_set(self.quiet, None)
        self.base.ggml_log_set(self.quiet, None)
        self.ggml.ggml_backend_load_all_from_path(self.folder.encode())
        self.lib.llama_backend_init()
        self.declare()
        assert C.sizeof(ModelParams) == 0x50 and C.sizeof(ContextParams) == 0xa0

    def open(self, name):
        paths = sorted(p for p in glob.glob(f'{self.folder}/{name}*.so') if 'common' not in p)
        return C.CDLL(paths[0], C.RTLD_GLOBAL)

    def declare(self):
        def function(name, result, *arguments):
            f = getattr(self.lib, name)
            f.restype, f.argtypes = result, list(arguments)
        P, I = C.c_void_p, C.c_int32
        function('llama_model_default_params', ModelParams)
        function('llama_context_default_params', ContextParams)
        function('llama_model_quantize_default_params', QuantParams)
        function('llama_model_load_from_file', P, C.c_char_p, ModelParams)
        function('llama_init_from_model', P, P, ContextParams)
        function('llama_batch_init', Batch, I, I, I)
        function('llama_batch_free', None, Batch)
        function('llama_decode', I, P, Batch)
        function('llama_get_logits_ith', C.POINTER(C.c_float), P, I)
        function('llama_model_get_vocab', P, P)
        function('llama_vocab_n_tokens', I, P)
        function('llama_free', None, P)
        function('llama_get_memory', P, P)
        function('llama_memory_clear', None, P, C.c_bool)
        function('llama_memory_seq_rm', C.c_bool, P, C.c_int32, C.c_int32, C.c_int32)
        function('llama_synchronize', None, P)
        function('llama_model_quantize', C.c_uint32, C.c_char_p, C.c_char_p, C.POINTER(QuantParams))
        function('llama_tokenize', I, P, C.c_char_p, I, P, I, C.c_bool, C.c_bool)

    def load(self, path, mmap=1, repack=0, vocab_only=False):
        p = self.lib.llama_model_default_params()
        p.load_mode, p.use_extra_bufts, p.n_gpu_layers, p.vocab_only = int(bool(mmap)), bool(repack), 0, vocab_only
        model = self.lib.llama_model_load_from_file(path.encode(), p)
        if not model:
            sys.exit('oracle: the reference cannot load ' + path)
        self.vocab = self.lib.llama_model_get_vocab(model)
        self.n_vocab = self.lib.llama_vocab_n_tokens(self.vocab)
        return model

    def context(self, model, n_ctx=1024, kv='f32', fa=0, threads=1, ubatch=512, watch=None, sequences=1):
        p = self.lib.llama_context_default_params()
        if watch:
            self.watch = watch  # kept alive
            p.cb_eval = C.cast(watch, C.c_void_p)
        p.n_ctx, p.n_batch, p.n_seq_max = n_ctx * sequences, n_ctx, sequences
        p.n_ubatch, p.n_threads, p.n_threads_batch, p.flash_attn_type = ubatch, threads, threads, fa
        p.type_k = p.type_v = {'f32': 0, 'f16': 1}[kv]
        return self.lib.llama_init_from_model(model, p)

    def feed(self, context, tokens, position, want='all'):
        last = len(tokens) - 1
        self.decode(context, [(t, position + i, 0, want == 'all' or i == last) for i, t in enumerate(tokens)])

    def decode(self, context, rows):
        """One batch of rows: token, position, sequence, whether its logits are wanted."""
        b = self.lib.llama_batch_init(len(rows), 0, 1)
        b.n_tokens = len(rows)
        ints = C.POINTER(C.c_int32)
        token, pos, n_seq = (C.cast(x, ints) for x in (b.token, b.pos, b.n_seq_id))
        seq, logits = C.cast(b.seq_id, C.POINTER(ints)), C.cast(b.logits, C.POINTER(C.c_int8))
        for i, row in enumerate(rows):
            token[i], pos[i], seq[i][0], logits[i] = row
            n_seq[i] = 1
        result = self.lib.llama_decode(context, b)
        self.lib.llama_batch_free(b)
        if result:
            sys.exit(f'oracle: decode returned {result}')

    def row(self, context, i):
        return array.array('f', self.lib.llama_get_logits_ith(context, i)[:self.n_vocab])

    def logits(self, path, tokens, step=False, repack=0, first=0, **options):
        """A row of logits for each token from `first` on, computed in one batch or (step) one at a time."""
        model = self.load(path, repack=repack)
        context = self.context(model, max(1024, (len(tokens) + 255) // 256 * 256), **options)
        if step:
            rows = []
            for i, t in enumerate(tokens):
                self.feed(context, [t], i)
                if i >= first:
                    rows.append(self.row(context, 0))
        else:
            self.feed(context, tokens, 0)
            rows = [self.row(context, i) for i in range(first, len(tokens))]
        self.lib.llama_free(context)
        return rows

    def watcher(self, names, out):
        """A callback that appends every intermediate tensor whose name contains one of `names` to `out`."""
        b = self.base
        b.ggml_get_name.restype, b.ggml_get_name.argtypes = C.c_char_p, [C.c_void_p]
        b.ggml_nbytes.restype, b.ggml_nbytes.argtypes = C.c_size_t, [C.c_void_p]
        b.ggml_backend_tensor_get.argtypes = [C.c_void_p, C.c_void_p, C.c_size_t, C.c_size_t]

        def see(tensor, ask, _):
            name = b.ggml_get_name(tensor).decode(errors='replace')
            wanted = any(x in name for x in names)
            if ask or not wanted:
                return wanted
            kind = {0: 'f', 26: 'i'}.get(C.c_int32.from_address(tensor).value)
            if kind:
                shape = list((C.c_int64 * 4).from_address(tensor + 16))
                strides = list((C.c_size_t * 4).from_address(tensor + 48))
                raw = (C.c_char * b.ggml_nbytes(tensor))()
                b.ggml_backend_tensor_get(tensor, raw, 0, len(raw))
                flat = array.array(kind, raw.raw[:len(raw) // 4 * 4])
                out.append(dict(name=name, shape=shape, values=[
                    flat[sum(i * s for i, s in zip((i0, i1, i2, i3), strides)) // 4] for i3 in range(shape[3])
                    for i2 in range(shape[2]) for i1 in range(shape[1]) for i0 in range(shape[0])]))
            return True
        return C.CFUNCTYPE(C.c_bool, C.c_void_p, C.c_bool, C.c_void_p)(see)

    def tokenize(self, path, text, special):
        self.load(path, vocab_only=True)
        ids = (C.c_int32 * (len(text) + 16))()
        n = self.lib.llama_tokenize(self.vocab, text, len(text), ids, len(ids), special, special)
        return list(ids[:n])

    def quantize(self, source, target, kind, pure=False):
        q = self.lib.llama_model_quantize_default_params()
        q.nthread, q.ftype, q.allow_requantize, q.pure = 2, FILE_TYPES[kind.lower()], True, pure
        return self.lib.llama_model_quantize(source.encode(), target.encode(), C.byref(q))
