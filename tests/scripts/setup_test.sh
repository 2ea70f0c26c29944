#!/usr/bin/env bash
# scripts/setup: what it prints, which mistakes it refuses and how, and that it is quick when nothing is missing.
set -euo pipefail
setup=$1/scripts/setup
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

"$setup" --cpu --print >"$folder/plan"
packages=$(grep -cE '^(build|test|fuzz) ' "$1/scripts/packages.txt")
[[ $(wc -l <"$folder/plan") == "$packages" ]] || fail "--print does not list the $packages packages"
"$setup" --quickstart --print >"$folder/short_plan"
if grep -q '^chromium' "$folder/short_plan"; then fail "--quickstart wants a test tool"; fi

# No package without a use: the word by which the build or a script takes it.
declare -A used_by=(
  [g++]='LANGUAGES CXX' [cmake]=cmake_minimum_required [ninja-build]='"Ninja"' [pkg-config]='find_package(PkgConfig'
  [git]='find_package(Git' [ccache]='CCACHE ccache' [libcli11-dev]='find_package(CLI11'
  [libtomlplusplus-dev]='find_package(tomlplusplus' [nlohmann-json3-dev]='find_package(nlohmann_json'
  [libfmt-dev]='find_package(fmt' [libdnnl-dev]=ONEDNN_LIBRARY [libhwy-dev]='find_package(hwy'
  [libpcre2-dev]='pkg_check_modules(PCRE2' [libsentencepiece-dev]='pkg_check_modules(SENTENCEPIECE' [libzstd-dev]='pkg_check_modules(ZSTD'
  [liblzma-dev]='find_package(LibLZMA' [zlib1g-dev]='find_package(ZLIB' [libjs-chart.js]=FILIGREE_CHART_JS
  [libopenmpi-dev]='find_package(MPI' [openmpi-bin]=MPIEXEC_EXECUTABLE
  [bible-kjv]='bible -' [bible-kjv-text]='bible -' [libgtest-dev]=GTest::gtest [libgmock-dev]=GTest::gmock
  [chromium]='"chromium"' [clang-format-14]=clang-format-14 [clang-16]='"clang++-16"'
  [libclang-rt-16-dev]=-fsanitize=fuzzer [python3]='bin/env python3' [python3-pip]='-m pip')
while read -r group package _; do
  [[ -z $group || $group == \#* ]] && continue
  word=${used_by[$package]:-}
  [[ -n $word ]] || fail "what uses $package? This test has no word for it"
  (cd "$1" && grep -rqF --exclude=packages.txt --exclude=setup_test.sh -- "$word" CMakeLists.txt CMakePresets.json \
    cmake src tests apps bench scripts) || fail "nothing uses $package: $word is nowhere"
done <"$1/scripts/packages.txt"

status=0
"$setup" --no-such-option >"$folder/out" 2>&1 || status=$?
((status == 2)) || fail "an unknown option ends with $status instead of 2"
grep -q "usage: scripts/setup" "$folder/out" || fail "an unknown option does not show the usage"

# With neither Debian's tools nor the packages at hand nothing is installed; the message names the system and what is
# missing. (An empty PATH but for the few tools that the script calls; bash finds no dpkg-query and no sudo there.)
mkdir "$folder/bin"
for tool in dirname cat cmp; do ln -s "$(command -v $tool)" "$folder/bin/$tool"; done
if [[ $(. /etc/os-release && echo "$ID $VERSION_ID") != "debian 12" ]]; then
  PATH=$folder/bin "$BASH" "$setup" --cpu >"$folder/out" 2>&1 && fail "another system is not refused"
  grep -q "are those of Debian 12" "$folder/out" || fail "the message does not say Debian 12: $(cat "$folder/out")"
elif ((EUID != 0)); then
  PATH=$folder/bin "$BASH" "$setup" --cpu >"$folder/out" 2>&1 && fail "neither root nor sudo is not refused"
  grep -q "apt-get install g++" "$folder/out" || fail "the message does not say what root has to run"
fi

if ! grep -q 'to install$' "$folder/plan"; then
  begin=${EPOCHREALTIME//[.,]/}
  "$setup" --cpu >"$folder/out"
  took=$((${EPOCHREALTIME//[.,]/} - begin))
  grep -q "everything is there" "$folder/out" || fail "nothing is missing, yet it says: $(cat "$folder/out")"
  # 0.1 s on an idle machine, which a test machine is not.
  ((took < 2000000)) || fail "nothing was missing, yet it took $took microseconds"
fi
