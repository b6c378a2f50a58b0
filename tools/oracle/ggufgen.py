#!/usr/bin/env python3
"""Writes small random models (F32, about a megabyte) whose logits a reference can compute: fixtures for the oracle tests.

  ggufgen.py ARCH OUT.gguf [--seed N] [--set D=64,F=64,E=4] [--with OPTION,OPTION]

ARCH: qwen3moe qwen2moe olmoe llama (with experts), gpt-oss glm4moe ernie4_5-moe hunyuan-moe minimax-m2 granitemoe
bailingmoe2 gemma4 deepseek2 deepseek4 qwen3next qwen35moe lfm2moe
phimoe nemotron_h_moe llama4 bailingmoe3, and dense: qwen2 qwen3 llama-dense. The same seed gives the same bytes.
--set: L layers, D width, E experts, K picks, V vocabulary, H query heads, KV key/value heads, hd head size, F FFN or expert width
--with: tied (no output.weight), fused-qkv, fused-gate-up, qkv-bias, yarn, linear, rope-freqs (as Llama 3), groups (4, 2 used),
        pattern (gpt-oss: windows as a list), mtp (glm4moe: a block that predicts further tokens),
        lite (deepseek2 as V2-Lite: softmax router, queries at once, no rotary scaling), unfolded (deepseek2: attn_kv_b, keys and values of all heads),
        joined (qwen3next: the older ssm_in), short (phimoe: the factors for short contexts are used),
        latent (nemotron_h_moe: experts see a narrower form of the row),
        temperature (deepseek2: queries grow with the position), far (llama4: a context beyond its chunk of 8192, layers that see all of it look closely)
"""
import argparse
import math
import random

from gguf import BOOL, CHATML, F32, I32, STR, U32, Gguf, add_bpe, add_spm, constant, uniform

QWEN_SPECIALS = ['<|endoftext|>', '<|im_start|>', '<|im_end|>']
DEFAULTS = dict(L=2, D=256, E=8, K=3, V=512)
# Head counts, head size and FFN (or expert) width where --set does not say.
SHAPES = {'qwen3moe': dict(H=8, KV=2, hd=64, F=256), 'qwen2moe': dict(H=4, KV=2, hd=64, F=256),
          'olmoe': dict(H=4, KV=4, hd=64, F=256), 'llama': dict(E=6, K=2, H=4, KV=2, hd=64, F=256),
          'qwen2': dict(E=0, H=4, KV=2, hd=64, F=512), 'qwen3': dict(E=0, H=4, KV=2, hd=64, F=512),
          'llama-dense': dict(E=0, H=4, KV=2, hd=64, F=512)}
SMALL = dict(D=64, F=32, E=8, K=3, H=4, KV=2, hd=16)
SHAPES |= {'gpt-oss': SMALL | dict(L=3, hd=32, F=64), 'glm4moe': SMALL | dict(L=3), 'ernie4_5-moe': SMALL | dict(L=3),
           'gemma4': SMALL | dict(L=3), 'deepseek2': SMALL | dict(L=3, hd=32), 'deepseek4': SMALL | dict(L=4, KV=1, hd=32, F=16), 'qwen3next': SMALL | dict(L=4), 'qwen35moe': SMALL | dict(L=4), 'lfm2moe': SMALL | dict(L=4), 'phimoe': SMALL,
           'nemotron_h_moe': SMALL | dict(L=5), 'llama4': SMALL | dict(L=5, K=1),
           'bailingmoe3': SMALL | dict(L=4, hd=32), 'hunyuan-moe': SMALL, 'minimax-m2': SMALL, 'granitemoe': SMALL, 'bailingmoe2': SMALL | dict(L=3)}


class Builder:
    def __init__(self, kind, seed, shape, options):
        self.kind, self.arch, self.options = kind, kind.removesuffix('-dense'), options
        self.rng = random.Random(seed * 1000003 + sum(map(ord, kind)))
        self.s = DEFAULTS | SHAPES[kind] | shape
        self.g = Gguf()

    # --- tensors ---
    def matrix(self, name, *shape, sigma=None):
        self.g.tensor(name, shape, uniform(self.rng, shape, sigma if sigma is not None else 1.0 / math.sqrt(shape[0])))

    def norm(self, name, *shape):
        self.g.tensor(name, shape, uniform(self.rng, shape, 0.15, 1.0))

    def bias(self, name, *shape, sigma=0.1):
        self.g.tensor(name, shape, uniform(self.rng, shape, sigma))

    # --- metadata ---
    def key(self, name, kind, v):
        self.g.add(self.arch + '.' + name, kind, v)

    def metadata(self, feed_forward, eps, base, head_size, per_layer_kv=None):
        s, g = self.s, self.g
        g.add('general.architecture', STR, self.arch)
        g.add('general.name', STR, 'tiny-' + self.kind)
        g.add('general.file_type', U32, 0)
        g.add('general.quantization_version', U32, 2)
        self.key('context_length', U32, 16384 if 'far' in self.options else 4096)
        self.key('embedding_length', U32, s['D'])
        self.key('block_count', U32, s['L'])
        if isinstance(feed_forward, list):
            g.array(self.arch + '.feed_forward_length', U32, feed_forward)
        else:
            self.key('feed_forward_length', U32, feed_forward)
        self.key('attention.head_count', U32, s['H'])
        if per_layer_kv:
            self.g.array(self.arch + '.attention.head_count_kv', U32, per_layer_kv)
        else:
            self.key('attention.head_count_kv', U32, s['KV'])
        self.key('attention.layer_norm_rms_epsilon', F32, eps)
        self.key('rope.freq_base', F32, base)
        self.key('vocab_size', U32, s['V'])
        if head_size:
            self.key('attention.key_length', U32, s['hd'])
            self.key('attention.value_length', U32, s['hd'])
        if s['E']:
            self.key('expert_count', U32, s['E'])
            self.key('expert_used_count', U32, s['K'])
        self.scaling()

    def scaling(self):
        for kind, factor in (('yarn', 4.0), ('linear', 2.5)):
            if kind in self.options:
                self.key('rope.scaling.type', STR, kind)
                self.key('rope.scaling.factor', F32, factor)
                self.key('rope.scaling.original_context_length', U32, 64)
        if 'groups' in self.options:
            self.key('expert_group_count', U32, 4)
            self.key('expert_group_used_count', U32, 2)

    # --- blocks ---
    def ends(self, norm='output_norm'):
        s = self.s
        # Small where they also are the head: else each token's own logit dwarfs what the layers add.
        tied = 'tied' in self.options
        self.matrix('token_embd.weight', s['D'], s['V'], sigma=2.5 / math.sqrt(s['D']) if tied else 1.0)
        self.norm(norm + '.weight', s['D'])
        if not tied:
            self.matrix('output.weight', s['D'], s['V'], sigma=2.5 / math.sqrt(s['D']))

    def attention(self, b, qk_norm=None, bias=False, gain=1.0):
        s = self.s
        D, q, kv = s['D'], s['H'] * s['hd'], s['KV'] * s['hd']
        bias = bias or 'qkv-bias' in self.options
        self.norm(b + 'attn_norm.weight', D)
        if 'fused-qkv' in self.options:
            self.matrix(b + 'attn_qkv.weight', D, q + 2 * kv)
            if bias:
                self.bias(b + 'attn_qkv.bias', q + 2 * kv)
        else:
            for name, rows in (('q', q), ('k', kv), ('v', kv)):
                self.matrix(b + 'attn_%s.weight' % name, D, rows, sigma=(1.0 if name == 'v' else gain) / math.sqrt(D))
                if bias:
                    self.bias(b + 'attn_%s.bias' % name, rows)
        if qk_norm:
            self.norm(b + 'attn_q_norm.weight', s['hd'] if qk_norm == 'head' else q)
            self.norm(b + 'attn_k_norm.weight', s['hd'] if qk_norm == 'head' else kv)
        self.matrix(b + 'attn_output.weight', q, D)

    def ffn(self, b, norm='ffn_norm', router=9.0, gain=1.0):
        s = self.s
        D, F, E = s['D'], s['F'], s['E']
        self.norm(b + norm + '.weight', D)
        if not E:
            self.swiglu(b, '', D, F)
            return
        # Well separated router rows: near-ties flip on rounding.
        self.matrix(b + 'ffn_gate_inp.weight', D, E, sigma=router / math.sqrt(D))
        if 'fused-gate-up' in self.options:
            self.matrix(b + 'ffn_gate_up_exps.weight', D, 2 * F, E)
        else:
            self.matrix(b + 'ffn_gate_exps.weight', D, F, E, sigma=gain / math.sqrt(D))
            self.matrix(b + 'ffn_up_exps.weight', D, F, E, sigma=gain / math.sqrt(D))
        self.matrix(b + 'ffn_down_exps.weight', F, D, E)

    def swiglu(self, b, suffix, D, F):
        self.matrix(b + 'ffn_gate%s.weight' % suffix, D, F)
        self.matrix(b + 'ffn_up%s.weight' % suffix, D, F)
        self.matrix(b + 'ffn_down%s.weight' % suffix, F, D)

    def rope_freqs(self):
        """Llama 3's factors: 8 for long waves, 1 for short ones, a ramp between."""
        if 'rope-freqs' not in self.options:
            return
        factors, size, context, low, high, factor = [], self.s['hd'], 64, 1.0, 4.0, 8.0
        for i in range(size // 2):
            wave = 2 * math.pi * 10000.0 ** (2 * i / size)
            t = min(1.0, max(0.0, (context / wave - low) / (high - low)))
            factors.append(1.0 / ((1.0 - t) / factor + t))
        self.g.tensor('rope_freqs.weight', [len(factors)], constant(factors))

    # --- families ---
    def qwen(self, head_size=False, qk_norm=None, bias=False, feed_forward=None, shared=0):
        s = self.s
        self.metadata(feed_forward or s['F'], 1e-6, 1e6, head_size)
        if s['E']:
            self.key('expert_feed_forward_length', U32, s['F'])
        if shared:
            self.key('expert_shared_feed_forward_length', U32, shared)
        add_bpe(self.g, 'qwen2', QWEN_SPECIALS, s['V'], '<|endoftext|>', '<|im_end|>', CHATML, False)
        self.ends()
        for b in self.blocks():
            self.attention(b, qk_norm, bias)
            self.ffn(b)
            if shared:
                self.matrix(b + 'ffn_gate_inp_shexp.weight', s['D'])
                self.swiglu(b, '_shexp', s['D'], shared)

    def blocks(self):
        return ['blk.%d.' % i for i in range(self.s['L'])]

    def olmoe(self):
        s = self.s
        assert s['H'] * s['hd'] == s['D']
        self.metadata(s['F'], 1e-5, 1e4, False)
        specials = ['|||IP_ADDRESS|||', '<|padding|>', '<|endoftext|>']
        add_bpe(self.g, 'olmo', specials, s['V'], '<|endoftext|>', '<|endoftext|>', add_bos=False)
        self.ends()
        for b in self.blocks():
            self.attention(b, 'whole')
            self.ffn(b)

    def llama(self):
        s = self.s
        self.metadata(s['F'], 1e-5, 1e4 if 'rope-freqs' in self.options else 1e6, False)
        self.key('rope.dimension_count', U32, s['hd'])
        add_spm(self.g, s['V'])
        self.ends()
        self.rope_freqs()
        for b in self.blocks():
            self.attention(b)
            self.ffn(b)

    def bpe(self, pre, norm='output_norm'):
        add_bpe(self.g, pre, QWEN_SPECIALS, self.s['V'], '<|endoftext|>', '<|im_end|>', CHATML, False)
        self.ends(norm)

    def gpt_oss(self):
        s = self.s
        self.options.add('yarn')
        self.metadata(s['F'], 1e-5, 150000.0, True)
        self.key('expert_feed_forward_length', U32, s['F'])
        # Shorter than the text, and in one model longer than a page of 64 positions.
        self.key('attention.sliding_window', U32, 70 if 'pattern' in self.options else 16)
        if 'pattern' in self.options:
            self.g.array('gpt-oss.attention.sliding_window_pattern', BOOL, [i % 3 != 1 for i in range(s['L'])])
        self.bpe('gpt-4o')
        for b in self.blocks():
            self.attention(b, bias=True)
            self.bias(b + 'attn_output.bias', s['D'])
            self.bias(b + 'attn_sinks.weight', s['H'], sigma=1.0)
            self.ffn(b, 'post_attention_norm', gain=4.0)  # so that the activation's limits are reached
            self.bias(b + 'ffn_gate_inp.bias', s['E'], sigma=1.0)
            for name, rows in (('gate', s['F']), ('up', s['F']), ('down', s['D'])):
                self.bias(b + 'ffn_%s_exps.bias' % name, rows, s['E'], sigma=0.5)

    def leading(self, b, norm, shared, bias=True, router=2.0):
        """A layer whose router has sigmoids and a bias for choosing, beside plain shared experts."""
        s = self.s
        self.ffn(b, norm, router=router)
        if bias:
            self.bias(b + 'exp_probs_b.bias', s['E'], sigma=0.3)
        if shared:
            self.swiglu(b, '_shexp', s['D'], shared)

    def dense(self, b, norm, width):
        self.norm(b + norm + '.weight', self.s['D'])
        self.swiglu(b, '', self.s['D'], width)

    def glm4moe(self):
        s = self.s
        blocks, mtp = s['L'], 'mtp' in self.options
        s['L'] += mtp
        self.metadata(96, 1e-5, 1e6, True)
        self.key('expert_feed_forward_length', U32, s['F'])
        self.key('rope.dimension_count', U32, s['hd'] // 2)
        self.key('expert_shared_count', U32, 2 if mtp else 1)
        self.key('leading_dense_block_count', U32, 1)
        self.key('expert_weights_norm', BOOL, True)
        self.key('expert_weights_scale', F32, 1.5)
        self.key('expert_gating_func', U32, 2)
        self.key('nextn_predict_layers', U32, int(mtp))
        self.bpe('glm4')
        for i, b in enumerate(self.blocks()):
            self.attention(b, None if mtp else 'head', bias=True)
            if i == 0:
                self.dense(b, 'post_attention_norm', 96)
            else:
                self.leading(b, 'post_attention_norm', s['F'] * (2 if mtp else 1))
            if i == blocks:
                self.matrix(b + 'nextn.eh_proj.weight', 2 * s['D'], s['D'])
                self.norm(b + 'nextn.enorm.weight', s['D'])
                self.norm(b + 'nextn.hnorm.weight', s['D'])

    def bailingmoe2(self):
        s = self.s
        assert s['H'] * s['hd'] == s['D']
        self.options |= {'fused-qkv', 'groups'}
        self.metadata(96, 1e-6, 6e5, True)
        self.key('expert_feed_forward_length', U32, s['F'])
        self.key('rope.dimension_count', U32, s['hd'] // 2)
        self.key('expert_shared_count', U32, 1)
        self.key('leading_dense_block_count', U32, 1)
        self.key('expert_weights_norm', BOOL, True)
        self.key('expert_weights_scale', F32, 2.5)
        self.key('expert_gating_func', U32, 2)
        self.bpe('bailingmoe2')
        for i, b in enumerate(self.blocks()):
            self.attention(b, 'head')
            if i == 0:
                self.dense(b, 'ffn_norm', 96)
            else:
                self.leading(b, 'ffn_norm', s['F'])

    def deepseek2(self):
        """Latent attention. Heads are hd elements that are not rotated and hd/2 that are; values hd."""
        s = self.s
        D, H, plain, rotated, rank = s['D'], s['H'], s['hd'], s['hd'] // 2, 2 * s['hd']
        lite, unfolded = 'lite' in self.options, 'unfolded' in self.options
        s['KV'], s['hd'] = (H, plain + rotated) if unfolded else (1, rank + rotated)
        if not lite:
            self.options.add('groups')
        self.metadata(96, 1e-6, 1e4, False)
        self.key('attention.key_length', U32, s['hd'])
        self.key('attention.value_length', U32, plain if unfolded else rank)
        self.key('attention.kv_lora_rank', U32, rank)
        if not unfolded:
            self.key('attention.key_length_mla', U32, plain + rotated)
            self.key('attention.value_length_mla', U32, plain)
        self.key('rope.dimension_count', U32, rotated)
        self.key('leading_dense_block_count', U32, 1)
        self.key('expert_feed_forward_length', U32, s['F'])
        self.key('expert_shared_count', U32, 2 if lite else 1)
        self.key('attention.q_lora_rank', U32, 0 if lite else D)
        if not lite:
            self.key('expert_gating_func', U32, 2)
            self.key('expert_weights_scale', F32, 2.5)
            self.key('expert_weights_norm', BOOL, True)
        if not lite or unfolded:
            self.key('rope.scaling.type', STR, 'yarn')
            self.key('rope.scaling.factor', F32, 40.0)
            self.key('rope.scaling.original_context_length', U32, 64)
            self.key('rope.scaling.yarn_log_multiplier', F32, 0.0707 if lite else 0.1)
        if 'temperature' in self.options:
            self.key('attention.temperature_scale', F32, 0.4)
            self.key('attention.temperature_length', U32, 20)
        self.bpe('deepseek-v3')
        for i, b in enumerate(self.blocks()):
            self.norm(b + 'attn_norm.weight', D)
            if lite:
                self.matrix(b + 'attn_q.weight', D, H * (plain + rotated))
            else:
                self.matrix(b + 'attn_q_a.weight', D, D)
                self.norm(b + 'attn_q_a_norm.weight', D)
                self.matrix(b + 'attn_q_b.weight', D, H * (plain + rotated))
            self.matrix(b + 'attn_kv_a_mqa.weight', D, rank + rotated)
            self.norm(b + 'attn_kv_a_norm.weight', rank)
            if unfolded:
                self.matrix(b + 'attn_kv_b.weight', rank, H * 2 * plain)
            else:
                self.matrix(b + 'attn_k_b.weight', plain, rank, H, sigma=1.0 / math.sqrt(rank))
                self.matrix(b + 'attn_v_b.weight', rank, plain, H)
            self.matrix(b + 'attn_output.weight', H * plain, D)
            if i == 0:
                self.dense(b, 'ffn_norm', 96)
            else:
                self.leading(b, 'ffn_norm', s['F'] * (2 if lite else 1), bias=not lite, router=9.0 if lite else 2.0)

    def deepseek4(self):
        """Layers without compressed keys, with one for 4 positions and with one for 128; the first two look up their experts."""
        s, g = self.s, self.g
        D, H, hd, E, K, F = s['D'], s['H'], s['hd'], s['E'], s['K'], s['F']
        rank, groups, out, streams, index_heads, index, hashed = 32, 2, 32, 4, 8, 64, 2
        ratios = [(0, 4, 128, 4)[i % 4] for i in range(s['L'])]
        self.metadata(96, 1e-6, 1e4, True)
        self.key('rope.dimension_count', U32, hd // 2)
        self.key('rope.scaling.type', STR, 'yarn')
        self.key('rope.scaling.factor', F32, 16.0)
        self.key('rope.scaling.original_context_length', U32, 64)
        self.key('attention.q_lora_rank', U32, rank)
        self.key('attention.sliding_window', U32, 24)
        self.key('attention.output_group_count', U32, groups)
        self.key('attention.output_lora_rank', U32, out)
        self.key('attention.compress_rope_freq_base', F32, 160000.0)
        g.array(self.arch + '.attention.compress_ratios', U32, ratios)
        self.key('attention.indexer.head_count', U32, index_heads)
        self.key('attention.indexer.key_length', U32, index)
        self.key('attention.indexer.top_k', U32, 8)
        self.key('hyper_connection.count', U32, streams)
        self.key('hyper_connection.sinkhorn_iterations', U32, 4)
        self.key('hyper_connection.epsilon', F32, 1e-6)
        self.key('hash_layer_count', U32, hashed)
        self.key('expert_feed_forward_length', U32, F)
        self.key('expert_shared_count', U32, 1)
        self.key('expert_gating_func', U32, 4)
        self.key('expert_weights_norm', BOOL, True)
        self.key('expert_weights_scale', F32, 1.5)
        # Low enough to bite.
        g.array(self.arch + '.swiglu_clamp_exp', F32, [1.0] * s['L'])
        g.array(self.arch + '.swiglu_clamp_shexp', F32, [0.7] * s['L'])
        self.bpe('deepseek-v3')
        self.hyper('output_hc', D, streams, streams, 1)
        for i, b in enumerate(self.blocks()):
            for part in ('attn', 'ffn'):
                self.hyper(b + 'hc_' + part, D, streams, streams * (2 + streams), 3)
            self.norm(b + 'attn_norm.weight', D)
            self.bias(b + 'attn_sinks.weight', H, sigma=1.0)
            self.matrix(b + 'attn_q_a.weight', D, rank)
            self.norm(b + 'attn_q_a_norm.weight', rank)
            self.matrix(b + 'attn_q_b.weight', rank, H * hd)
            self.matrix(b + 'attn_kv.weight', D, hd)
            self.norm(b + 'attn_kv_a_norm.weight', hd)
            self.matrix(b + 'attn_output_a.weight', H * hd // groups, out * groups)
            self.matrix(b + 'attn_output_b.weight', out * groups, D)
            if ratios[i]:
                self.compressor(b + 'attn_compressor', D, hd, ratios[i])
            if ratios[i] == 4:
                self.matrix(b + 'indexer.proj.weight', D, index_heads)
                self.matrix(b + 'indexer.attn_q_b.weight', rank, index_heads * index)
                self.compressor(b + 'indexer_compressor', D, index, 4)
            self.ffn(b, router=2.0)
            self.swiglu(b, '_shexp', D, F)
            if i < hashed:
                ids = [e for _ in range(s['V']) for e in self.rng.sample(range(E), K)]
                g.tensor(b + 'ffn_gate_tid2eid.weight', [K, s['V']], constant(ids, 'i'), kind=26)
            else:
                self.bias(b + 'exp_probs_b.bias', E, sigma=0.3)

    def hyper(self, name, D, streams, n, scales):
        self.matrix(name + '_fn.weight', D * streams, n)
        self.bias(name + '_base.weight', n, sigma=0.5)
        self.g.tensor(name + '_scale.weight', [scales], uniform(self.rng, [scales], 0.1, 0.7))

    def compressor(self, name, D, width, ratio):
        wide = width * (2 if ratio == 4 else 1)
        self.matrix(name + '_kv.weight', D, wide)
        self.matrix(name + '_gate.weight', D, wide)
        self.bias(name + '_ape.weight', wide, ratio, sigma=0.5)
        self.norm(name + '_norm.weight', width)

    def qwen3next(self):
        self.delta_nets(2, 4)

    def qwen35moe(self):
        self.delta_nets(2, 6)

    def delta_nets(self, key_heads, heads):
        """Every second layer is attention with a gate, the others are gated delta nets."""
        s = self.s
        D, d, taps, next_form = s['D'], 16, 4, self.kind == 'qwen3next'
        keys, values = key_heads * d, heads * d
        self.metadata(96, 1e-6, 1e6, True)
        for name, n in (('conv_kernel', taps), ('inner_size', values), ('state_size', d), ('time_step_rank', heads), ('group_count', key_heads)):
            self.key('ssm.' + name, U32, n)
        self.key('full_attention_interval', U32, 2)
        self.key('rope.dimension_count', U32, s['hd'] // 2)
        if not next_form:
            self.g.array('qwen35moe.rope.dimension_sections', I32, [2, 1, 1, 0])
        self.key('expert_feed_forward_length', U32, s['F'])
        self.key('expert_shared_feed_forward_length', U32, 2 * s['F'])
        self.bpe('qwen2' if next_form else 'qwen35')
        for i, b in enumerate(self.blocks()):
            if i % 2:
                queries = s['H']
                s['H'] *= 2  # beside each query its gate
                q, kv = s['H'] * s['hd'], s['KV'] * s['hd']
                self.norm(b + 'attn_norm.weight', D)
                for name, rows in (('q', q), ('k', kv), ('v', kv)):
                    self.matrix(b + 'attn_%s.weight' % name, D, rows)
                self.norm(b + 'attn_q_norm.weight', s['hd'])
                self.norm(b + 'attn_k_norm.weight', s['hd'])
                s['H'] = queries
                self.matrix(b + 'attn_output.weight', queries * s['hd'], D)
            else:
                self.norm(b + 'attn_norm.weight', D)
                if 'joined' in self.options:
                    self.matrix(b + 'ssm_in.weight', D, 2 * keys + 2 * values)
                else:
                    self.matrix(b + 'attn_qkv.weight', D, 2 * keys + values)
                    self.matrix(b + 'attn_gate.weight', D, values)
                self.matrix(b + 'ssm_conv1d.weight', taps, 2 * keys + values)
                self.bias(b + 'ssm_dt.bias', heads, sigma=1.0)
                self.g.tensor(b + 'ssm_a', [heads], uniform(self.rng, [heads], 0.2, -0.5))
                if next_form:
                    self.matrix(b + 'ssm_ba.weight', D, 2 * heads)
                else:
                    self.matrix(b + 'ssm_beta.weight', D, heads)
                    self.matrix(b + 'ssm_alpha.weight', D, heads)
                self.norm(b + 'ssm_norm.weight', d)
                self.matrix(b + 'ssm_out.weight', values, D)
            self.ffn(b, 'post_attention_norm')
            self.matrix(b + 'ffn_gate_inp_shexp.weight', D)
            self.swiglu(b, '_shexp', D, 2 * s['F'])

    def lfm2moe(self):
        """Convolutions between attention layers; the first layer is dense."""
        s = self.s
        D, taps = s['D'], 3
        attention = [i % 3 == 1 for i in range(s['L'])]
        self.options.add('tied')
        self.metadata(96, 1e-5, 1e6, False, per_layer_kv=[s['KV'] if a else 0 for a in attention])
        self.key('shortconv.l_cache', U32, taps)
        self.key('leading_dense_block_count', U32, 1)
        self.key('expert_feed_forward_length', U32, s['F'])
        self.key('expert_gating_func', U32, 2)
        self.bpe('lfm2', norm='token_embd_norm')
        for i, b in enumerate(self.blocks()):
            if attention[i]:
                self.attention(b, 'head')
            else:
                self.norm(b + 'attn_norm.weight', D)
                self.matrix(b + 'shortconv.conv.weight', taps, D)
                self.matrix(b + 'shortconv.in_proj.weight', D, 3 * D)
                self.matrix(b + 'shortconv.out_proj.weight', D, D)
            if i == 0:
                self.dense(b, 'ffn_norm', 96)
            else:
                self.leading(b, 'ffn_norm', 0)

    def phimoe(self):
        """Norms and the head are biased; the rotation has factors for long contexts and for short ones."""
        s = self.s
        D = s['D']
        self.metadata(s['F'], 1e-5, 1e4, False)
        self.key('rope.dimension_count', U32, s['hd'])
        self.key('rope.scaling.type', STR, 'longrope')
        self.key('rope.scaling.original_context_length', U32, 2048 if 'short' in self.options else 32)
        self.key('rope.scaling.attn_factor', F32, 1.19)
        add_spm(self.g, s['V'])
        self.ends()
        self.bias('output_norm.bias', D)
        self.bias('output.bias', s['V'])
        for name, step in (('long', 0.7), ('short', 0.1)):
            self.g.tensor('rope_factors_%s.weight' % name, [s['hd'] // 2], constant([1 + step * i for i in range(s['hd'] // 2)]))
        for b in self.blocks():
            self.attention(b, bias=True)
            self.bias(b + 'attn_norm.bias', D)
            self.bias(b + 'attn_output.bias', D)
            self.ffn(b)
            self.bias(b + 'ffn_norm.bias', D)

    def nemotron_h_moe(self):
        """Each layer is one block: Mamba, experts, attention, experts, Mamba."""
        s = self.s
        D, F, E, kinds = s['D'], s['F'], s['E'], 'MEAEM'[:s['L']]
        taps, heads, groups, state, inner = 4, 4, 2, 16, 2 * D
        self.metadata([F * s['K'] if k == 'E' else 0 for k in kinds], 1e-5, 1e4, True,
                      per_layer_kv=[s['KV'] if k == 'A' else 0 for k in kinds])
        self.key('attention.layer_norm_epsilon', F32, 1e-5)
        for name, n in (('conv_kernel', taps), ('inner_size', inner), ('state_size', state), ('time_step_rank', heads), ('group_count', groups)):
            self.key('ssm.' + name, U32, n)
        latent = D // 2 if 'latent' in self.options else 0
        if latent:
            self.key('moe_latent_size', U32, latent)
        else:
            self.key('expert_feed_forward_length', U32, F)
        self.key('expert_shared_feed_forward_length', U32, 2 * F)
        self.key('expert_shared_count', U32, 1)
        self.key('expert_weights_norm', BOOL, True)
        self.key('expert_weights_scale', F32, 2.5)
        self.bpe('qwen2')
        channels = inner + 2 * groups * state
        for kind, b in zip(kinds, self.blocks()):
            if kind == 'A':
                self.attention(b)
                continue
            self.norm(b + 'attn_norm.weight', D)
            if kind == 'M':
                self.matrix(b + 'ssm_in.weight', D, inner + channels + heads)
                self.matrix(b + 'ssm_conv1d.weight', taps, channels)
                self.bias(b + 'ssm_conv1d.bias', channels)
                self.bias(b + 'ssm_dt.bias', heads, sigma=1.0)
                self.g.tensor(b + 'ssm_a', [1, heads], uniform(self.rng, [1, heads], 0.2, -0.5))
                self.norm(b + 'ssm_d', 1, heads)
                self.norm(b + 'ssm_norm.weight', inner // groups, groups)
                self.matrix(b + 'ssm_out.weight', inner, D)
                continue
            self.matrix(b + 'ffn_gate_inp.weight', D, E, sigma=2.0 / math.sqrt(D))
            self.bias(b + 'exp_probs_b.bias', E, sigma=0.3)
            if latent:
                self.matrix(b + 'ffn_latent_down.weight', D, latent)
                self.matrix(b + 'ffn_latent_up.weight', latent, D)
            self.matrix(b + 'ffn_up_exps.weight', latent or D, F, E)
            self.matrix(b + 'ffn_down_exps.weight', F, latent or D, E)
            self.matrix(b + 'ffn_up_shexp.weight', D, 2 * F)
            self.matrix(b + 'ffn_down_shexp.weight', 2 * F, D)

    def bailingmoe3(self):
        """Delta nets with a decay for each key element, and in every second layer latent attention with gated heads."""
        s = self.s
        D, H, plain, rotated, rank, d, taps = s['D'], s['H'], s['hd'], s['hd'] // 2, 2 * s['hd'], 16, 4
        s['hd'], width = rank + rotated, H * d
        self.metadata(96, 1e-6, 1e4, False, per_layer_kv=[i % 2 for i in range(s['L'])])
        self.key('attention.key_length', U32, s['hd'])
        self.key('attention.value_length', U32, rank)
        self.key('attention.kv_lora_rank', U32, rank)
        self.key('attention.q_lora_rank', U32, D)
        self.key('attention.key_length_mla', U32, plain + rotated)
        self.key('attention.value_length_mla', U32, plain)
        self.key('rope.dimension_count', U32, rotated)
        self.key('ssm.conv_kernel', U32, taps)
        self.key('kda.head_dim', U32, d)
        self.key('kda.safe_gate', BOOL, True)
        self.key('kda.gate_lower_bound', F32, -5.0)
        self.key('leading_dense_block_count', U32, 1)
        self.key('expert_feed_forward_length', U32, s['F'])
        self.key('expert_shared_count', U32, 1)
        self.key('expert_gating_func', U32, 2)
        self.key('expert_weights_scale', F32, 2.5)
        self.key('expert_weights_norm', BOOL, True)
        self.bpe('bailingmoe2')
        for i, b in enumerate(self.blocks()):
            self.norm(b + 'attn_norm.weight', D)
            if i % 2:
                self.matrix(b + 'attn_q_a.weight', D, D)
                self.norm(b + 'attn_q_a_norm.weight', D)
                self.matrix(b + 'attn_q_b.weight', D, H * (plain + rotated))
                self.matrix(b + 'attn_kv_a_mqa.weight', D, rank + rotated)
                self.norm(b + 'attn_kv_a_norm.weight', rank)
                self.matrix(b + 'attn_k_b.weight', plain, rank, H, sigma=1.0 / math.sqrt(rank))
                self.matrix(b + 'attn_v_b.weight', rank, plain, H)
                self.matrix(b + 'attn_gate.weight', D, H)
                self.matrix(b + 'attn_output.weight', H * plain, D)
            else:
                for part in 'qkv':
                    self.matrix(b + 'attn_%s.weight' % part, D, width)
                    self.matrix(b + 'ssm_conv1d_%s.weight' % part, taps, 1, width, 1)
                self.matrix(b + 'ssm_f_a.weight', D, width)
                self.matrix(b + 'ssm_beta.weight', D, H)
                self.matrix(b + 'ssm_g_a.weight', D, width)
                self.g.tensor(b + 'ssm_a', [1, H], uniform(self.rng, [1, H], 0.2, 1.0))
                self.bias(b + 'ssm_dt.bias', width, sigma=1.0)
                self.norm(b + 'ssm_norm.weight', d)
                self.matrix(b + 'attn_output.weight', width, D)
            if i == 0:
                self.dense(b, 'ffn_norm', 96)
            else:
                self.leading(b, 'ffn_norm', s['F'])

    def llama4(self):
        """Every fourth layer does not rotate; experts in every second layer."""
        s = self.s
        self.metadata(96, 1e-5, 5e5, True)
        self.key('rope.dimension_count', U32, s['hd'])
        self.key('interleave_moe_layer_step', U32, 2)
        self.key('expert_feed_forward_length', U32, s['F'])
        self.bpe('llama4')
        self.rope_freqs()
        for i, b in enumerate(self.blocks()):
            self.attention(b, gain=1.6 if 'far' in self.options and i % 4 == 3 else 1.0)
            if i % 2:
                self.leading(b, 'ffn_norm', s['F'], bias=False)
            else:
                self.dense(b, 'ffn_norm', 96)

    def ernie4_5_moe(self):
        s = self.s
        self.metadata(96, 1e-5, 5e5, True)
        self.key('expert_feed_forward_length', U32, s['F'])
        self.key('expert_shared_feed_forward_length', U32, 2 * s['F'])
        self.key('interleave_moe_layer_step', U32, 1)
        self.key('leading_dense_block_count', U32, 1)
        self.options.add('tied')
        add_spm(self.g, s['V'])
        self.ends()
        for i, b in enumerate(self.blocks()):
            self.attention(b)
            if i == 0:
                self.dense(b, 'ffn_norm', 96)
            else:
                self.leading(b, 'ffn_norm', 2 * s['F'], router=9.0)

    def hunyuan_moe(self):
        s = self.s
        self.metadata(s['F'], 1e-5, 1e4, True)
        self.key('expert_feed_forward_length', U32, s['F'])
        self.key('expert_shared_feed_forward_length', U32, 2 * s['F'])
        self.bpe('hunyuan')
        for b in self.blocks():
            self.attention(b, 'head')
            self.leading(b, 'ffn_norm', 2 * s['F'], bias=False, router=9.0)

    def minimax_m2(self):
        s = self.s
        self.metadata(s['F'], 1e-6, 5e6, True)
        self.key('expert_feed_forward_length', U32, s['F'])
        self.key('expert_gating_func', U32, 2)
        self.key('rope.dimension_count', U32, s['hd'] // 2)
        self.bpe('minimax-m2')
        for b in self.blocks():
            self.attention(b, 'whole')
            self.leading(b, 'ffn_norm', 0)

    def granitemoe(self):
        s = self.s
        self.metadata(s['F'], 1e-6, 1e4, True)
        self.key('rope.dimension_count', U32, s['hd'])
        self.key('expert_shared_feed_forward_length', U32, 2 * s['F'])
        for name, factor in (('logit_scale', 3.0), ('residual_scale', 0.6), ('embedding_scale', 1.7), ('attention.scale', 0.2)):
            self.key(name, F32, factor)
        self.options.add('tied')
        self.bpe('refact')
        for b in self.blocks():
            self.attention(b)
            self.leading(b, 'ffn_norm', 2 * s['F'], bias=False, router=9.0)

    def gemma4(self):
        """Two kinds of layers: windowed ones, and full ones with fewer and wider KV heads (whose keys are the values, too)."""
        s = self.s
        D, F, E, dense = s['D'], s['F'], s['E'], 48
        windowed = [i % 3 != 1 for i in range(s['L'])]
        kv = [s['KV'] if w else 1 for w in windowed]
        s['hd'] *= 2  # of full layers
        self.options.add('tied')
        self.metadata(dense, 1e-6, 1e6, True, per_layer_kv=kv)
        s['hd'] //= 2
        self.key('attention.key_length_swa', U32, s['hd'])
        self.key('attention.value_length_swa', U32, s['hd'])
        self.key('rope.dimension_count', U32, 2 * s['hd'])
        self.key('rope.dimension_count_swa', U32, s['hd'])
        self.key('rope.freq_base_swa', F32, 1e4)
        self.key('attention.sliding_window', U32, 16)
        self.g.array('gemma4.attention.sliding_window_pattern', BOOL, windowed)
        self.key('attention.shared_kv_layers', U32, 0)
        self.key('embedding_length_per_layer_input', U32, 0)
        self.key('expert_feed_forward_length', U32, F)
        self.key('final_logit_softcapping', F32, 5.0)
        self.bpe('gemma4')
        pairs = s['hd']
        self.g.tensor('rope_freqs.weight', [pairs], constant([1.0 if i < pairs // 4 else 1e30 for i in range(pairs)]))
        for i, b in enumerate(self.blocks()):
            hd = s['hd'] if windowed[i] else 2 * s['hd']
            for name in ('attn_norm', 'post_attention_norm', 'ffn_norm', 'post_ffw_norm'):
                self.norm(b + name + '.weight', D)
            self.matrix(b + 'attn_q.weight', D, hd * s['H'])
            self.matrix(b + 'attn_k.weight', D, hd * kv[i])
            if windowed[i]:
                self.matrix(b + 'attn_v.weight', D, hd * kv[i])
            self.norm(b + 'attn_q_norm.weight', hd)
            self.norm(b + 'attn_k_norm.weight', hd)
            self.matrix(b + 'attn_output.weight', hd * s['H'], D)
            self.g.tensor(b + 'layer_output_scale.weight', [1], constant([0.9]))
            self.swiglu(b, '', D, dense)
            for name in ('pre_ffw_norm_2', 'post_ffw_norm_1', 'post_ffw_norm_2'):
                self.norm(b + name + '.weight', D)
            self.matrix(b + 'ffn_gate_inp.weight', D, E, sigma=9.0)
            self.norm(b + 'ffn_gate_inp.scale', D)
            self.matrix(b + 'ffn_gate_up_exps.weight', D, 2 * F, E)
            self.matrix(b + 'ffn_down_exps.weight', F, D, E)
            self.norm(b + 'ffn_down_exps.scale', E)

    def build(self):
        own = getattr(self, self.kind.replace('-', '_'), None)
        if own and self.kind in SHAPES:
            own()
        elif self.kind == 'qwen3moe':
            self.qwen(head_size=True, qk_norm='head', feed_forward=1024)
        elif self.kind == 'qwen2moe':
            self.qwen(bias=True, feed_forward=1024, shared=512)
        elif self.kind == 'qwen3':
            self.qwen(head_size=True, qk_norm='head')
        elif self.kind == 'qwen2':
            self.qwen(bias=True)
        else:
            self.llama()
        return self.g


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('arch', choices=sorted(SHAPES))
    p.add_argument('out')
    p.add_argument('--seed', type=int, default=1)
    p.add_argument('--set', default='')
    p.add_argument('--with', dest='options', default='')
    a = p.parse_args()
    shape = {k: int(v) for k, v in (x.split('=') for x in a.set.split(',') if x)}
    options = {x for x in a.options.split(',') if x}
    print(a.out, Builder(a.arch, a.seed, shape, options).build().write(a.out), 'bytes')


if __name__ == '__main__':
    main()
