#!/usr/bin/env bash
# Every script of examples/ at a tiny size, and the Slurm job with a scontrol that only writes down what it is told.
set -euo pipefail
source=$1
export FILIGREE=$2 OMP_NUM_THREADS=1
examples=$source/examples
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { echo "FAILED: $*"; exit 1; }
run() { "$@" >out 2>err || { cat out err; fail "$* ends with $?"; }; }

awk 'BEGIN { for (i = 0; i < 600; ++i) print "In year " i % 37 " the river waits for rain and the heron keeps its " i % 11 " times.\n" }' >text.txt
tiny=()
for key in model.layers=1 model.width=32 model.heads=2 model.context=32 train.steps=3 train.warmup=1 train.batch_tokens=64 \
    train.micro_batch=2 eval.tokens=64 eval.every=0 run.threads=1; do
  tiny+=(--set "$key")
done
export TOKENIZER=bytes

run "$examples/train-on-text.sh" text.txt text "${tiny[@]}"
[[ -s text/run/report.html && -d text/run/tensorboard ]] || fail "train-on-text.sh leaves no report and no events"

RATES=1e-3 TUNE_STEPS=2 run "$examples/compare-methods.sh" text.txt compare "${tiny[@]}"
[[ -s compare/comparison.html ]] || fail "compare-methods.sh leaves no page"

run "$FILIGREE" export text/run --out hub
shape=()  # the imported model's own
for key in train.steps=3 train.warmup=1 train.batch_tokens=64 train.micro_batch=2 eval.tokens=64 run.threads=1; do
  shape+=(--set "$key")
done
run "$examples/sparse-from-pretrained.sh" hub text.txt pretrained "${shape[@]}"
[[ -s pretrained/exported/model.safetensors ]] || fail "sparse-from-pretrained.sh exports nothing"

run "$examples/evaluate.sh" text/run scores
grep -q '"acc,none"' scores/results.json || fail "evaluate.sh writes no results"

# A run that its time's end interrupts, and that ends the second time.
mkdir bin
cat >bin/scontrol <<'TEXT'
#!/usr/bin/env bash
echo "$*" >>requeued
TEXT
chmod +x bin/scontrol
export CONFIG=$source/configs/tiny-slope.toml RUN=slurm SLURM_JOB_ID=42 PATH=$PWD/bin:$PATH
TRAIN_ARGUMENTS="--set train.steps=100000 --set run.threads=1" "$examples/train.sbatch" >out 2>&1 &
job=$!
for ((i = 0; i < 300; ++i)); do [[ -s slurm/metrics.jsonl ]] && break; sleep 0.1; done
[[ -s slurm/metrics.jsonl ]] || { cat out; fail "train.sbatch does not train"; }
kill -TERM "$job"
code=0
wait "$job" || code=$?
((code == 3)) || { cat out; fail "an interrupted train.sbatch ends with $code"; }
[[ $(cat requeued) == "requeue 42" ]] || fail "train.sbatch does not go back into the queue"
steps=$(wc -l <slurm/metrics.jsonl)
TRAIN_ARGUMENTS="--set train.steps=$((steps + 2)) --set run.threads=1" run "$examples/train.sbatch"
[[ $(wc -l <requeued) == 1 && -s slurm/report.html ]] || fail "a finished train.sbatch is requeued"
