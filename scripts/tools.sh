#!/usr/bin/env bash
# Makes sure that programs are there: installs those that are missing where that can be done without asking, or says how.
# usage: tools.sh PROGRAM... [-- PROGRAM...]; those after the -- may be missing where they can't be installed: that is
# said, and what needs one of them says so again when it fails or is skipped.
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
needed=0
optional=0
for program in "$@"; do
    if [ "$program" = -- ]; then
        optional=1
    elif ! command -v "$program" >/dev/null; then
        missing+=("$(package "$program")")
        [ $optional = 1 ] || needed=1
    fi
done
[ ${#missing[@]} = 0 ] && exit 0
echo "tools: missing: ${missing[*]}" >&2
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "tools: installing them with apt-get" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -q "${missing[@]}" >&2 || { apt-get update -q >&2 && apt-get install -y -q "${missing[@]}" >&2; }
else
    echo "tools: install them and try again, for example: sudo apt-get install ${missing[*]}" >&2
    [ $needed = 0 ] || exit 1
    echo "tools: going on without them: the tests that need one fail or are skipped, and say so" >&2
fi
