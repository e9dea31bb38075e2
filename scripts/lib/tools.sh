# shellcheck shell=bash
# Shared by the scripts; sourced from the root of the sources.

die() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# clang-format or clang-tidy of version 19 or newer, wherever the distribution put it. The version
# that Debian 12 calls "clang-format" (14) does not know our C++20.
find_clang_tool() {
  local name=$1 candidate version
  for candidate in "$name-19" "$name-20" "$name-21" "$name"; do
    if command -v "$candidate" >/dev/null; then
      version=$("$candidate" --version | sed -n 's/.*version \([0-9]*\).*/\1/p')
      if [[ ${version:-0} -ge 19 ]]; then
        echo "$candidate"
        return 0
      fi
    fi
  done
  return 1
}

# Our C++ and CUDA sources, NUL-separated: tracked, and new ones that git does not ignore; without
# git (an unpacked archive) all of them. With an argument: only those that differ from that commit.
sources() {
  if ! git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    # shellcheck disable=SC2046  # words on purpose: the folders of the house
    find $(sed -n 's/^set(SPP_LAYERS \(.*\))$/\1/p' cmake/SppLayers.cmake) tests bench \
      \( -name '*.hpp' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 2>/dev/null
    return 0
  fi
  {
    if [[ $# -gt 0 ]]; then
      git diff --name-only --diff-filter=d -z "$1" -- '*.hpp' '*.cpp' '*.cu' '*.cuh'
    else
      git ls-files --cached -z -- '*.hpp' '*.cpp' '*.cu' '*.cuh'
    fi
    git ls-files --others --exclude-standard -z -- '*.hpp' '*.cpp' '*.cu' '*.cuh'
  } | while IFS= read -r -d '' file; do
    if [[ -f $file ]]; then
      printf '%s\0' "$file"
    fi
  done
}

# compiler_of PRESET: the one to configure it with; nothing: CMake's choice. Sanitized code takes g++ half
# as long again to compile as clang++ (which comes without the sanitizers on some systems).
compiler_of() {
  local clang
  if [[ $1 == dev || $1 == tsan ]] && clang=$(find_clang_tool clang++) &&
    echo 'int main() {}' | "$clang" -x c++ -fsanitize=address,undefined - -o /dev/null 2>/dev/null; then
    echo "$clang"
  fi
}

# build_preset PRESET [TARGET...]: configures when needed, with configure_options, and builds (the preset's
# own targets if none is named), saying nothing unless it fails or takes long. All on stderr. One at a time
# for each preset.
configure_options=()
build_preset() {
  local preset=$1 folder="build/$1" log compiler
  shift
  mkdir -p "$folder"
  (
    flock 9
    log=$folder/scripts.log
    if [[ ! -f $folder/build.ninja ]] ||
      ! grep -q -F "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" "$folder/CMakeCache.txt"; then
      scripts/setup --build || exit 1
      echo "${0##*/}: building in $folder (this takes a few minutes the first time)" >&2
      compiler=$(compiler_of "$preset")
      cmake --preset "$preset" --fresh ${compiler:+"-DCMAKE_CXX_COMPILER=$compiler"} \
        ${configure_options[@]+"${configure_options[@]}"} >"$log" 2>&1 ||
        { cat "$log" >&2; exit 1; }
    fi
    cmake --build --preset "$preset" -j "$(nproc)" ${1:+--target "$@"} >"$log" 2>&1 ||
      { cat "$log" >&2; exit 1; }
  ) 9>"$folder/.lock" || die "the build failed (preset $preset)"
}
