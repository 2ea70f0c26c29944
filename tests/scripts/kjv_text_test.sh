#!/usr/bin/env bash
# scripts/kjv-text loses no word of the source, and its documents have the shape that its comment promises.
set -euo pipefail
command -v bible >/dev/null || { echo "skipped: bible-kjv is not installed"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

"$1/scripts/kjv-text" >"$folder/text"

# Every word, in order: the source without verse numbers against the text without separators.
bible -l100000 "Gen1:1-Rev22:21" | sed -E 's/^ +[0-9]+ //' | tr -s ' \n' '\n\n' | sed '/^$/d' >"$folder/source_words"
grep -vxF '<|endoftext|>' "$folder/text" | tr -s ' \n' '\n\n' | sed '/^$/d' >"$folder/text_words"
cmp "$folder/source_words" "$folder/text_words" || fail "the words differ from the source's"

documents=$(awk 'BEGIN { n = 1 } $0 == "<|endoftext|>" { ++n } END { print n }' "$folder/text")
((documents == 1189)) || fail "$documents documents instead of 1189 chapters"
[[ $(head -n 1 "$folder/text") == "Genesis 1" ]] || fail "the first line is not the first heading"
grep -qxF "1 Samuel 1" "$folder/text" || fail "the heading of a book whose name begins with a number is lost"
if grep -nE '[.?!] [0-9]+ [A-Z]' "$folder/text"; then fail "a verse number is left in the text"; fi
longest=$(awk '{ if (length > n) n = length } END { print n }' "$folder/text")
((longest < 4000)) || fail "a paragraph of $longest characters"
