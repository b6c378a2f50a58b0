#!/usr/bin/env bash
# Writes the models of tests/data/models with the reference's logits: make-models.sh OUTDIR [NAME...]
# Needs the reference library (oracle.py --help) and, for the types that are drawn and not encoded, moetier itself ($MOETIER). Per model: NAME.gguf, NAME.tokens (input ids), NAME.f32 (logits of every
# position, float32, exact mode, one token at a time), NAME.spread.json (how far the reference's other paths are from that).
set -euo pipefail
cd "$(dirname "$0")"
out=${1:?where to write}; shift || true
wanted=" $* "
mkdir -p "$out"
tmp=$(mktemp -d)
trap 'rm -r "$tmp"' EXIT

tokens() {  # how many, seed
  python3 -c "import random, sys; r = random.Random($2); print(','.join(str(r.randrange(3, 500)) for _ in range($1)))"
}

reference() {  # name, tokens, first position wanted: the logits of $out/name.gguf
  local base=$out/$1
  echo "$2" >"$base.tokens"
  python3 oracle.py logits "$base.gguf" "$2" --step --first "${3:-0}" -o "$base.f32" >/dev/null
  python3 oracle.py spread "$base.gguf" "$2" --first "${3:-0}" >"$base.spread.json"
  echo "$1 $(cat "$base.spread.json")"
}

skipped() { [[ $wanted != "  " && $wanted != *" $1 "* ]]; }

case_f32() {  # name, arch, shape, options, positions, first position whose logits are kept
  skipped "$1" && return
  python3 ggufgen.py "$2" "$out/$1.gguf" --seed 9 --set "$3" --with "$4" >/dev/null
  reference "$1" "$(tokens "${5:-40}" 12)" "${6:-0}"
}

case_types() {  # prefix, arch, shape, types...
  local prefix=$1 arch=$2 shape=$3 type
  shift 3
  for type in "$@"; do
    skipped "$prefix-$type" && continue
    python3 ggufgen.py "$arch" "$tmp/$prefix.gguf" --seed 3 --set "$shape" >/dev/null
    python3 oracle.py quantize "$tmp/$prefix.gguf" "$out/$prefix-$type.gguf" "$type" >/dev/null
    reference "$prefix-$type" "$(tokens 40 11)"
  done
}

case_mixed() {  # name, shape (synth's), seed, types...: each matrix of another type than the one before
  skipped "$1" && return
  local name=$1 shape=$2 seed=$3 type files=()
  shift 3
  for type in "$@"; do
    "${MOETIER:-../../build/release/moetier}" synth -q --like tiny --type "$type" --seed "$seed" $shape -o "$tmp/$type.gguf"
    files+=("$tmp/$type.gguf")
  done
  python3 mix.py "$out/$name.gguf" "${files[@]}"
  reference "$name" "$(python3 -c "import random; r = random.Random(11); print(','.join(str(r.randrange(3, 300)) for _ in range(24)))")"
}

# The ordinary shape of each family, and odd ones: no width, head size or vocabulary is a multiple of what kernels like.
mini=D=64,F=64,E=8,K=3,H=4,hd=16,V=512
for arch in qwen3moe qwen2moe llama; do case_f32 mini-$arch-f32 $arch $mini,KV=2 ''; done
case_f32 mini-olmoe-f32 olmoe $mini,KV=4 ''
case_f32 odd-qwen3moe-f32 qwen3moe D=96,F=72,E=3,K=1,H=3,KV=1,hd=80,V=509 ''
case_f32 odd-llama-f32 llama D=120,F=56,E=7,K=5,H=5,KV=1,hd=24,V=515 ''
# Dense families, past two KV pages; variants that files of these families have.
dense=D=64,F=96,H=4,KV=2,hd=16,V=512
case_f32 mini-qwen2-f32 qwen2 $dense '' 150
case_f32 mini-qwen3-f32 qwen3 $dense tied 150
case_f32 mini-llama-dense-f32 llama-dense $dense rope-freqs,tied 150
case_f32 odd-qwen3-f32 qwen3 D=72,F=100,H=6,KV=3,hd=40,V=509 ''
case_f32 fused-qwen2-f32 qwen2 $dense fused-qkv
case_f32 linear-llama-dense-f32 llama-dense $dense linear,qkv-bias
case_f32 yarn-qwen3moe-f32 qwen3moe $mini,KV=2,F=32 yarn 150
case_f32 groups-llama-f32 llama $mini,KV=2,F=32 groups
# Families with branches of their own: windows shorter than the text, sinks, biases, leading dense layers, groups, blocks that are not run.
case_f32 mini-gpt-oss-f32 gpt-oss '' '' 150
case_f32 odd-gpt-oss-f32 gpt-oss D=80,F=40,E=5,K=2,H=6,KV=3,hd=24,V=517 pattern 150
case_f32 mini-glm4moe-f32 glm4moe '' ''
case_f32 mtp-glm4moe-f32 glm4moe '' mtp,tied
for arch in ernie4_5-moe hunyuan-moe minimax-m2 granitemoe bailingmoe2; do case_f32 mini-$arch-f32 $arch '' ''; done
case_types mini-gpt-oss gpt-oss '' mxfp4_moe q8_0
case_f32 mini-gemma4-f32 gemma4 '' '' 150
case_types mini-glm4moe glm4moe '' q8_0
case_types mini-gemma4 gemma4 '' q8_0 q4_0
case_types mini-bailingmoe2 bailingmoe2 '' q8_0 q5_0
case_types mini-ernie4_5-moe ernie4_5-moe '' q8_0
case_types mini-hunyuan-moe hunyuan-moe '' q5_1
case_types mini-minimax-m2 minimax-m2 '' q8_0
case_types mini-granitemoe granitemoe '' q4_1
case_f32 mini-deepseek2-f32 deepseek2 '' '' 150
case_f32 lite-deepseek2-f32 deepseek2 '' lite,tied 80
case_f32 temperature-deepseek2-f32 deepseek2 L=2 temperature 80
case_f32 unfolded-deepseek2-f32 deepseek2 '' lite,unfolded 80
case_types mini-deepseek2 deepseek2 '' q5_0
# Past two blocks of 128 positions.
case_f32 mini-deepseek4-f32 deepseek4 '' '' 272
case_types mini-deepseek4 deepseek4 '' q5_0
case_f32 mini-llama4-f32 llama4 '' rope-freqs 80
case_f32 many-llama4-f32 llama4 L=4,D=32,F=8,E=128,hd=8 ''
case_types mini-llama4 llama4 K=2 q8_0
# Past its chunk of 8192 positions, where queries of the layers that see everything grow, too.
case_f32 far-llama4-f32 llama4 L=4,D=32,F=8,E=4,H=2,KV=1,hd=16 far 8232 8172
# Recurrent layers beside attention.
for arch in qwen3next qwen35moe; do case_f32 mini-$arch-f32 $arch '' '' 150; done
case_f32 joined-qwen3next-f32 qwen3next '' joined
case_types mini-qwen3next qwen3next '' q8_0
case_types mini-qwen35moe qwen35moe '' q4_0
case_f32 mini-bailingmoe3-f32 bailingmoe3 '' '' 80
case_types mini-bailingmoe3 bailingmoe3 '' q5_0
case_f32 mini-lfm2moe-f32 lfm2moe '' '' 80
case_types mini-lfm2moe lfm2moe '' q8_0
case_f32 mini-phimoe-f32 phimoe '' '' 150
case_f32 short-phimoe-f32 phimoe '' short
case_types mini-phimoe phimoe '' q8_0
case_f32 mini-nemotron_h_moe-f32 nemotron_h_moe '' '' 80
case_f32 latent-nemotron_h_moe-f32 nemotron_h_moe '' latent
case_types mini-nemotron_h_moe nemotron_h_moe '' q8_0
# Every type: widths of 64 for blocks of 32, of 256 for the K types.
case_types mini-qwen3moe qwen3moe $mini,KV=2 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl mxfp4_moe
case_types small-qwen3moe qwen3moe D=256,F=256,E=4,K=2,H=4,KV=2,hd=64,V=512 q4_k_m q5_k_m q6_k
# The types below four bits and their relatives, all in one model; NVFP4 with its factors.
case_mixed many-qwen3moe-types '--layers 5 --set E=3 --set K=2 --set V=320' 21 \
  nvfp4 q2_k iq1_s iq4_xs iq1_m tq1_0 iq2_xxs q3_k iq2_xs iq3_s iq2_s tq2_0 iq3_xxs
