#!/usr/bin/env bash
# `filigree completion bash` completes commands, options, choices and files.
set -euo pipefail
filigree=$2
cd "$(mktemp -d)"
trap 'rm -rf "$PWD"' EXIT
mkdir runs && touch notes.txt
source <("$filigree" completion bash)

status=0
# expect WORDS... -- COMPLETION...: what the last of WORDS may become; a ! before a completion: not that one.
expect() {
  COMP_WORDS=(filigree)
  while [[ $1 != -- ]]; do COMP_WORDS+=("$1"); shift; done
  shift
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
  _filigree || true  # nothing fits
  local wanted
  for wanted; do
    if [[ $wanted == !* ]]; then
      [[ " ${COMPREPLY[*]} " != *" ${wanted#!} "* ]] || { echo "FAILED: ${COMP_WORDS[*]}: ${wanted#!} is offered"; status=1; }
    elif [[ " ${COMPREPLY[*]} " != *" $wanted "* ]]; then
      echo "FAILED: ${COMP_WORDS[*]}: $wanted is not among: ${COMPREPLY[*]}"; status=1
    fi
  done
}
expect tr -- train '!tune'
expect --v -- --version
expect eval --ta -- --task --task-data '!--tokens'
expect eval runs --device c -- cpu cuda '!auto'
expect eval r -- runs
expect eval --data no -- notes.txt '!--device'
expect bench m -- matmul
expect bench matmul --sh -- --shape
expect bench step --recompute b -- block
expect eval --json --j -- --json
expect import --prec -- --precision
exit "$status"
