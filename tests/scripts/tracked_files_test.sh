#!/usr/bin/env bash
# No file that a tool made is tracked: inputs of a fuzzer (named by their hash), its findings, temporary files.
set -euo pipefail
cd "$1"
command -v git >/dev/null && git rev-parse --is-inside-work-tree >/dev/null 2>&1 || { echo "skipped: no git"; exit 77; }
made=$(git ls-files | grep -E '(^|/)([0-9a-f]{40}|(crash|leak|timeout|oom)-[^/]*|[^/]*\.tmp)$' || true)
[[ -z $made ]] || { echo "FAILED: these files should not be tracked:"; echo "$made"; exit 1; }
