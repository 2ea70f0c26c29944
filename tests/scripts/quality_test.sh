#!/usr/bin/env bash
# The harness of bench/quality: it chooses rates, goes on where it stopped, survives runs that fail, stops when it is
# told to, and writes rows that stand beside their baseline.
#
#   quality_test.sh SOURCE_FOLDER FILIGREE
set -euo pipefail
source=$1 filigree=$2
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export PYTHONDONTWRITEBYTECODE=1
fail() { echo "FAILED: $*"; cat log; exit 1; }

run=(python3 "$source/bench/quality/run.py" --filigree "$filigree" --data data --runs runs --out out.json
  --table "$source/tests/scripts/quality/table.py" --device cpu --threads 1)

# Runs the harness, and fails unless it ends with CODE.
harness() { # CODE [OPTION...]
  local code=$1 status=0
  shift
  "${run[@]}" --jobs 3 --base "$source/docs/results/quality.json" "$@" >log 2>&1 || status=$?
  ((status == code)) || fail "$* ended with $status instead of $code"
}

# Fails unless CONDITION holds; `rows` are the results, `loss(METHOD, SEED)` the row of a validation loss.
check() { # CONDITION
  python3 - "$1" "$source" <<'P' || fail "$1"
import json, sys
rows = json.load(open("out.json"))["rows"]
published = json.load(open(sys.argv[2] + "/docs/results/quality.json"))["rows"]
def loss(method, seed):
    return next(row for row in rows if row["case"] == "tiny" and row["method"] == method
                and row["config"]["seed"] == seed and row["metric"] == "val_loss")
def beside_dense(method, seed):
    return loss(method, seed)["ratio"] == loss(method, seed)["median"] - loss("dense", seed)["median"]
def metrics(method):
    return sorted(row["metric"] for row in rows if row["method"] == method)
assert eval(sys.argv[1])
P
}

"$filigree" prepare --text "$source/configs/lace.txt" --tokenizer bytes --val-fraction 0.2 --out data >log 2>&1 ||
  fail "the data"

harness 2 --check
grep -q "^FAILED: tiny slope-lrinf" log || fail "--check does not name what is refused"
[[ $(grep -c "^FAILED" log) == 1 ]] || fail "--check refuses more than one"

harness 0 --limit-seconds 1
grep -q "10 to do" log && [[ ! -e runs ]] || fail "without time something is begun"

harness 0 --only 'dense-lr*'
check 'all(row in rows for row in published) and loss("dense-lr1e-3", 1)["ratio"] is None'

harness 1 --only '[12]*'
grep -q "FAILED: tiny slope-lrinf seed 1: ended with 2" log || fail "the run that fails is not named"
grep -q "slope seed 1: is one of the grid's" log || fail "the best run of a grid is repeated"
check 'loss("slope", 1)["command"] == loss("slope-lr1e-3", 1)["command"]'
check 'loss("dense", 1)["median"] == min(loss("dense-lr1e-3", 1)["median"], loss("dense-lr4e-2", 1)["median"])'
check 'all(beside_dense("slope", seed) for seed in (1, 2)) and beside_dense("dense-lr1e-3", 1)'
check 'metrics("dense-longer") == ["bits_per_byte", "shared_step_ms", "tokens", "val_loss"]'
check '[row["median"] for row in rows if row["method"] == "dense-longer" and row["metric"] == "tokens"] == [1024]'

cp out.json before.json
harness 1 --only '[12]*'
[[ $(grep -c seed log) == 1 ]] || fail "something that was done is done again"
cmp out.json before.json || fail "nothing new, and the results differ"

# A new file from what the runs' folders hold, without running anything.
rm out.json
harness 0 --only 'dense*' --filigree false
check 'loss("dense", 2) in json.load(open("before.json"))["rows"]'

harness 0 --summarise
grep -qE '^\| dense \| [0-9.]+e-[0-9] \| [0-9.]+ \| [0-9.]+ \|' log || fail "the table has no line for dense"

# Told to stop, it lets the run write a checkpoint, from which the next call goes on.
steps() { { cat runs/tiny-endless-*/metrics.jsonl 2>/dev/null || true; } | wc -l; }
stop_soon() {
  local before status=0
  before=$(steps)
  "${run[@]}" --only endless >log 2>&1 &
  local harness=$!
  for _ in $(seq 200); do
    (($(steps) > before + 10)) && break
    sleep 0.02
  done
  kill -TERM $harness
  wait $harness || status=$?
  ((status == 3)) || fail "interrupted, it ended with $status instead of 3"
  grep -q "stopped, unfinished" log || fail "it does not say that a run is unfinished"
}
stop_soon
[[ -n $(ls runs/tiny-endless-*/checkpoints) ]] || fail "there is no checkpoint"
stop_soon
if grep -q "^step 1/" runs/tiny-endless-*.log; then fail "the run began anew"; fi

harness 2 --scale huge
grep -q "run.py: --scale huge: the table has shorter" log || fail "an unknown scale is not explained"
