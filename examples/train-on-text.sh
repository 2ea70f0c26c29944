#!/usr/bin/env bash
# From text files to a sparse model that writes text.
#   examples/train-on-text.sh TEXT OUT [--set KEY=VALUE ...]
set -euo pipefail
filigree=${FILIGREE:-filigree} text=$1 out=$2
shift 2

"$filigree" prepare --text "$text" --tokenizer "${TOKENIZER:-spm:4096}" --out "$out/data"
cat >"$out/model.toml" <<'TOML'
[model]
arch = "gpt2"
layers = 6
width = 384
heads = 6
context = 256

[data]
train = "data/train*.bin"
val = "data/val*.bin"

[train]
steps = 2000
batch_tokens = 8192
micro_batch = 8
lr = 2e-3
warmup = 100
min_lr = 0.1

[weights]
method = "slope"
pattern = "2:4"

[eval]
every = 500

[log]
tensorboard = true
TOML
"$filigree" inspect "$out/model.toml" "$@"
"$filigree" train "$out/model.toml" --out "$out/run" "$@"
"$filigree" eval "$out/run"
"$filigree" generate "$out/run" --prompt "Once upon a time" --tokens 100 --seed 7
