#!/usr/bin/env bash
# What the documentation points at exists: relative links, and files of scripts/, configs/, src/, tests/ in code marks.
# README.md links to every page.
set -euo pipefail
cd "$1"
status=0

for page in *.md docs/*.md; do
  folder=$(dirname "$page")
  while read -r target; do
    [[ -e $folder/${target%%#*} ]] || { echo "FAILED: $page links to $target, which does not exist"; status=1; }
  done < <(grep -oE '\]\([^)]+\)' "$page" | sed -E 's/^\]\(|\)$//g' | grep -vE '^(https?:|#)')
  while read -r path; do
    [[ -e $path ]] || { echo "FAILED: $page names $path, which does not exist"; status=1; }
  done < <(grep -oP '(?<![\w/.-])(scripts|configs|src|tests|docs)/[A-Za-z0-9_./-]*[A-Za-z0-9]' "$page" |
    grep -vE 'NAME|mine\.toml' | sort -u)
done
for page in docs/*.md; do
  grep -qF "]($page)" README.md || { echo "FAILED: README.md does not link to $page"; status=1; }
done
exit "$status"
