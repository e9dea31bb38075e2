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
    find base schedule sim planner runtime cli tests bench \
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
