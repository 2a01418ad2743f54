#!/usr/bin/env bash
# Makes sure that programs are there: installs those that are missing where that can be done without asking, or says how.
# usage: tools.sh PROGRAM...
set -euo pipefail

package() {
    case $1 in
        bwrap) echo bubblewrap ;;
        rg) echo ripgrep ;;
        busybox) echo busybox-static ;;
        *) echo "$1" ;;
    esac
}

missing=()
for program in "$@"; do
    command -v "$program" >/dev/null || missing+=("$(package "$program")")
done
[ ${#missing[@]} = 0 ] && exit 0
echo "tools: missing: ${missing[*]}" >&2
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "tools: installing them with apt-get" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -q "${missing[@]}" >&2 || { apt-get update -q >&2 && apt-get install -y -q "${missing[@]}" >&2; }
else
    echo "tools: install them and try again, for example: sudo apt-get install ${missing[*]}" >&2
    exit 1
fi
