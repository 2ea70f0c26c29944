#!/usr/bin/env bash
# The commands of the documentation work. README's own, in fenced blocks and in the text, are run one after the other on
# a text and models of tiny size; a command that is neither run here nor listed as left out fails the test, so that a new
# one needs a decision. On the other pages, commands and flags of filigree are looked up in its --help.
#
#   readme_test.sh SOURCE_FOLDER FILIGREE
set -euo pipefail
source=$1 filigree=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
fail() { echo "FAILED: $*"; exit 1; }

# Commands that are not run here, and why.
declare -A left_out=(
  [scripts/quickstart]="installs packages and trains for minutes; its steps are the commands below it"
  [scripts/test]="runs this test"
  ["cmake --preset cuda && cmake --build --preset cuda --target filigree"]="scripts/test builds it where nvcc is"
  ["cmake --install build --prefix ~/.local"]="tests/scripts/package_test.sh installs into a folder of its own"
  ["build-cuda/filigree train configs/mine.toml --out runs/mine"]="as build/filigree, on a GPU"
)

# Makes a training run tiny.
tiny=(model.layers=1 model.width=32 model.heads=2 model.kv_heads=2 model.ffn=64 model.context=32 train.steps=3
  train.warmup=1 train.batch_tokens=64 train.micro_batch=2 eval.tokens=64 run.threads=1)

# The lines of fenced shell blocks without their comments, then what stands as `filigree ...` in the text.
commands_of() { # PAGE
  awk '/^```/ { shell = !inside && $0 == "```sh"; inside = !inside; next }
       shell { sub(/(^|[ \t]+)#.*/, ""); if ($0 != "") print }' "$1"
  awk '/^```/ { inside = !inside; next } !inside' "$1" | tr '\n' ' ' |
    grep -oE '`filigree [a-z]+[^`]*`' | sed 's|^`|build/|; s|`$||' || true
}

# Runs what PAGE shows; where that does not work, says what is wrong and returns 1.
run_page() { # PAGE
  local command more key
  while IFS= read -r command; do
    [[ -z ${left_out[$command]:-} ]] || continue
    [[ $command =~ ^build/filigree\ [a-z]+$ ]] && continue  # a command is mentioned, not shown
    if [[ $command != build/filigree\ * || $command == *[\;\|\&\$\<\>\`]* ]]; then
      echo "$1: '$command' is neither run by this test nor left out by it"
      return 1
    fi
    more=
    if [[ $command =~ ^build/filigree\ (train|tune)\  ]]; then
      for key in "${tiny[@]}"; do more+=" --set $key"; done
    fi
    eval "$command$more" >out 2>err </dev/null || { echo "$1: '$command' ends with $?: $(cat err)"; return 1; }
  done < <(commands_of "$1")
}

# Whether every command of filigree that PAGE shows or mentions is there, with the flags beside it.
look_up_page() { # PAGE
  local program name inner command help flag
  while read -r program name command; do
    [[ $program == *filigree ]] || continue
    help=$("$filigree" "$name" --help 2>&1) || { echo "$1: there is no command 'filigree $name'"; return 1; }
    for inner in $(sed -n '/^Subcommands:/,/^$/s/^  \([a-z]\+\) .*/\1/p' <<<"$help"); do
      help+=$'\n'$("$filigree" "$name" "$inner" --help)
    done
    for flag in $(grep -oE -- '--[a-z-]+' <<<"$command" || true); do
      grep -qE -- "(^|[ ,])$flag([ ,]|$)" <<<"$help" || { echo "$1: 'filigree $name' has no $flag"; return 1; }
    done
  done < <(commands_of "$1")
}

# What README asks its reader to have: a text, a configuration that names what `prepare` makes of it, questions, and a model
# of Hugging Face's. The text is of made-up words, the first ones frequent: enough for a vocabulary of 4,096 pieces.
mkdir -p build notes data runs
ln -s "$filigree" build/filigree
cp -r "$source/configs" configs
awk 'BEGIN {
  srand(7)
  split("ba ce di fo gu ha je ki lo mu na pe ri so tu va we xi yo zu", part, " ")
  for (w = 0; w < 3000; ++w) for (s = 0; s < 2 + w % 3; ++s) word[w] = word[w] part[1 + int(20 * rand())]
  for (line = 0; line < 4000; ++line) {
    text = word[int(3000 * rand() * rand())]
    for (i = 1; i < 12; ++i) text = text " " word[int(3000 * rand() * rand())]
    print text "."
  }
}' >mybook.txt
head -n 50 mybook.txt >notes/first.txt
mkdir blimp data/eval models
cp -r "$source/tests/hub/cases/gpt2" models/gpt2
echo '{"sentence_good": "ba ce", "sentence_bad": "ce ba", "linguistics_term": "order"}' >blimp/order.jsonl
tar czf data/eval/blimp.tar.gz blimp
echo '{"activity_label": "Ba", "ctx_a": "Ce di.", "ctx_b": "fo", "endings": ["gu", "ha", "je", "ki"], "label": 2}' \
  >data/eval/hellaswag.jsonl
sed -E 's|^train = .*|train = "../data/mine/train*.bin"|; s|^val = .*|val = "../data/mine/val*.bin"|' \
  configs/quickstart-slope.toml >configs/mine.toml

problem=$(run_page "$source/README.md") || fail "$problem"
shown=$(commands_of "$source/README.md")
(($(wc -l <<<"$shown") >= 12)) || fail "README's commands are not found any more, only: $shown"
for command in "${!left_out[@]}"; do
  grep -qxF -- "$command" <<<"$shown" || fail "'$command' is left out, but README does not show it"
done
for page in "$source"/*.md "$source"/docs/*.md; do
  problem=$(look_up_page "$page") || fail "$problem"
done

# It would notice: a command without a decision, an unknown flag in a block or in the text, an unknown command.
notices() { # run_page|look_up_page TEXT
  printf '%s\n' "$2" >page.md
  if "$1" page.md >/dev/null; then fail "$1 accepts this page: $2"; fi
}
notices run_page $'```sh\nmake coffee\n```'
notices run_page $'```sh\nbuild/filigree eval runs/mine --taks perplexity\n```'
notices run_page 'Then `filigree inspect runs/mine --flat` shows it.'
notices look_up_page 'Then `filigree prepare --tekst x` reads it.'
notices look_up_page 'Then `filigree brew` makes it.'
