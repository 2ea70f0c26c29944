#!/usr/bin/env bash
# Dense, SLoPe and block sparsity on the same text, each at its own best learning rate, on one page.
#   examples/compare-methods.sh TEXT OUT [--set KEY=VALUE ...]
set -euo pipefail
filigree=${FILIGREE:-filigree} text=$1 out=$2
shift 2

"$filigree" prepare --text "$text" --tokenizer "${TOKENIZER:-spm:4096}" --out "$out/data"
cat >"$out/model.toml" <<'TOML'
[model]
arch = "gpt2"
layers = 4
width = 256
heads = 4
context = 256

[data]
train = "data/train*.bin"
val = "data/val*.bin"

[train]
steps = 1000
batch_tokens = 4096
micro_batch = 8
warmup = 50
min_lr = 0.1
TOML
runs=()
for method in dense slope block; do
  "$filigree" tune "$out/model.toml" --set weights.method=$method --lr "${RATES:-1e-3,2e-3,4e-3}" --steps "${TUNE_STEPS:-200}" \
    --out "$out/rates-$method" --json "$@" >"$out/rates-$method.json"
  rate=$(sed -n 's/^ *"pick": *\([-0-9.e+]*\),*$/\1/p' "$out/rates-$method.json")
  "$filigree" train "$out/model.toml" --set weights.method=$method --set train.lr="$rate" --out "$out/$method" "$@"
  runs+=("$out/$method")
done
"$filigree" report "${runs[@]}" --out "$out/comparison.html"
