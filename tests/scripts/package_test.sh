#!/usr/bin/env bash
# `cmake --install` and the Debian package hold a program that runs, its configurations, documents, examples and
# completion; what the container recipes name exists.
set -euo pipefail
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

check_tree() { # PREFIX
  local file
  "$1/bin/filigree" --version >/dev/null
  for file in share/filigree/configs/tiny-slope.toml share/bash-completion/completions/filigree \
      share/doc/filigree/README.md share/doc/filigree/LICENSE share/doc/filigree/docs/configuration.md \
      share/doc/filigree/examples/train.sbatch; do
    [[ -s $1/$file ]] || { echo "FAILED: $1/$file is missing"; exit 1; }
  done
  [[ -x $1/share/doc/filigree/examples/evaluate.sh ]] || { echo "FAILED: the examples cannot be run"; exit 1; }
  [[ ! -e $1/include && ! -e $1/lib ]] || { echo "FAILED: more than the program is installed"; exit 1; }
}

cmake --install "$build" --prefix "$work/prefix" >/dev/null
check_tree "$work/prefix"

# Every file and script that a recipe names is there.
for recipe in packaging/Dockerfile packaging/filigree.def; do
  for word in scripts/setup "cmake --preset" "filigree_completion" CPackConfig.cmake; do
    grep -qF "$word" "$source/$recipe" || { echo "FAILED: $recipe does not name $word"; exit 1; }
  done
done

if ! command -v cpack >/dev/null || ! command -v dpkg-deb >/dev/null; then
  echo "no cpack and dpkg-deb here: the package was not made"
  exit 77
fi
(cd "$work" && cpack --config "$build/CPackConfig.cmake" -B "$work" >log 2>&1) || { tail -5 "$work/log"; exit 1; }
package=$(ls "$work"/filigree_*.deb)
dpkg-deb -x "$package" "$work/unpacked"
check_tree "$work/unpacked/usr"
[[ $(dpkg-deb -f "$package" Package) == filigree ]]
if command -v dpkg-shlibdeps >/dev/null; then
  for library in libc6 libdnnl libfmt libsentencepiece; do
    dpkg-deb -f "$package" Depends | grep -q "$library" || { echo "FAILED: the package does not depend on $library"; exit 1; }
  done
fi
