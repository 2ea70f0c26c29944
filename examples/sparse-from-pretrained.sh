#!/usr/bin/env bash
# A model from a Hugging Face folder becomes sparse, is trained on, and leaves as a Hugging Face folder.
#   examples/sparse-from-pretrained.sh MODEL TEXT OUT [--set KEY=VALUE ...]
set -euo pipefail
filigree=${FILIGREE:-filigree} model=$1 text=$2 out=$3
shift 3

mkdir -p "$out"
"$filigree" import "$model" --out "$out/imported"
"$filigree" prepare --text "$text" --tokenizer "${TOKENIZER:-$model}" --out "$out/data"
cat >"$out/model.toml" <<TOML
[model]
init = "imported"

[data]
train = "data/train*.bin"
val = "data/val*.bin"

[train]
steps = 1000
batch_tokens = 8192
micro_batch = 4
lr = 2e-4
warmup = 50
min_lr = 0.1

[weights]
method = "slope"
pattern = "2:4"
mask = "magnitude"      # keep the larger half of each group of four
init_scale = "none"     # as large as they are
TOML
"$filigree" train "$out/model.toml" --out "$out/run" "$@"
"$filigree" eval "$out/run"
"$filigree" export "$out/run" --out "$out/exported"
