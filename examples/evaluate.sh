#!/usr/bin/env bash
# Scores a model on tasks, and on questions of your own.
#   examples/evaluate.sh RUN OUT
# EVAL_DATA: a folder that holds hellaswag.jsonl, piqa.jsonl and the like, for TASKS; see docs/evaluation.md.
set -euo pipefail
filigree=${FILIGREE:-filigree} run=$1 out=$2

mkdir -p "$out"
cat >"$out/capitals.jsonl" <<'JSON'
{"query": "The capital of France is", "choices": ["Paris", "Rome", "Oslo"], "gold": 0}
{"query": "The capital of Norway is", "choices": ["Paris", "Rome", "Oslo"], "gold": 2}
JSON
"$filigree" eval "$run" --task capitals --task-data "$out"
"$filigree" eval "$run" --task "perplexity,capitals${TASKS:+,$TASKS}" --task-data "$out" \
  ${EVAL_DATA:+--task-data "$EVAL_DATA"} --json >"$out/results.json"
