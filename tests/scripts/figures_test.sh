#!/usr/bin/env bash
# The documents' measured figures are those of docs/results/, and scripts/figures would notice if they were not.
set -euo pipefail
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

"$1/scripts/figures" || fail "figures are not those of docs/results; for tables, run scripts/figures --write"

fresh() {
  rm -rf "$folder/copy"
  mkdir -p "$folder/copy"
  cp -r "$1/scripts" "$1/docs" "$1/README.md" "$folder/copy"
}
notices() { # WHAT TEXT: scripts/figures on the copy ends with 1 and says TEXT
  local status=0
  "$folder/copy/scripts/figures" >"$folder/out" 2>&1 || status=$?
  ((status == 1)) && grep -qF -- "$2" "$folder/out" || fail "$1 is not noticed: status $status, $(cat "$folder/out")"
}
# Changes cpu.json: `rows` are those of the copy, `row` the SLoPe step of the quickstart model in fp32.
change() { # STATEMENT
  python3 - "$folder/copy/docs/results/cpu.json" "$1" <<'P'
import json, sys
document = json.load(open(sys.argv[1]))
rows = document["rows"]
row = next(row for row in rows if (row["case"], row["method"], row["metric"]) == ("quickstart", "slope", "step_ms")
           and row["config"]["precision"] == "fp32")
exec(sys.argv[2])
json.dump(document, open(sys.argv[1], "w"))
P
}

fresh "$1"
sed -i '/^| quickstart model, .*fp32/s/[0-9.]* |$/9.99 |/' "$folder/copy/README.md"
notices "a figure that was typed" "README.md:"
"$folder/copy/scripts/figures" --write >/dev/null || fail "--write ends with $?"
cmp "$1/README.md" "$folder/copy/README.md" || fail "--write does not restore the table"

fresh "$1"
change 'row["median"] *= 0.5'
notices "a ratio that does not follow" "quickstart, slope, fp32, step_ms: the ratio is"
change 'row["ratio"] *= 2'
notices "a table of older results" "the table is not that of the results"
"$folder/copy/scripts/figures" --write >/dev/null || fail "new values do not fit into the tables"

fresh "$1"
change 'row["commit"] = "another"'
notices "another commit" "quickstart, slope, fp32, step_ms: measured at another"

fresh "$1"
change 'rows.append(dict(row))'
notices "a row that is there twice" "is there twice"

fresh "$1"
change 'rows.remove(row)'
notices "a missing row" "quickstart has 0 rows of slope, step_ms"

fresh "$1"
sed -i 's/<!-- table: cpu-steps -->/<!-- table: cpu-strides -->/' "$folder/copy/README.md"
notices "an unknown table" "README.md: there is no table cpu-strides"
