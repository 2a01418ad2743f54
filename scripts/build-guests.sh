#!/usr/bin/env bash
# Builds guest crates into core WebAssembly modules, with whichever toolchain this machine has:
#   1. rustup's target wasm32-unknown-unknown, the normal way, added on demand where rustup can download it
#   2. Debian's rustc-web, cargo-web and rust-web-src, which carry the standard library's sources
# usage: build-guests.sh TARGET_DIR PACKAGE...
#   The modules end up in TARGET_DIR/wasm32-unknown-unknown/guest/*.wasm.
set -euo pipefail
cd "$(dirname "$0")/.."
target_dir=$1
shift
target=wasm32-unknown-unknown
args=(build --locked --profile guest --target "$target" --target-dir "$target_dir")
for package in "$@"; do args+=(-p "$package"); done

say() { printf 'guests: %s\n' "$*" >&2; }

sysroot=$(rustc --print sysroot 2>/dev/null || true)
has_target() { compgen -G "$sysroot/lib/rustlib/$target/lib/libstd-*.rlib" >/dev/null; }
has_debian() { [ -x /usr/bin/cargo ] && compgen -G '/usr/src/rustc-*/library/std/Cargo.toml' >/dev/null; }

if ! has_target && ! has_debian && command -v rustup >/dev/null; then
    say "the Rust target $target is missing; adding it with rustup"
    timeout 300 rustup target add "$target" >&2 || say "rustup can't add it here"
fi
if has_target; then
    say "building with $(rustc --version) and rustup's $target"
    exec cargo "${args[@]}"
fi

if ! has_debian && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    say "falling back on Debian's rustc-web, cargo-web and rust-web-src; installing them"
    { apt-get install -y rustc-web cargo-web rust-web-src || { apt-get update && apt-get install -y rustc-web cargo-web rust-web-src; }; } >&2
fi
if ! has_debian; then
    say "no way to build for $target. Do one of these and try again:"
    say "  rustup target add $target"
    say "  sudo apt-get install rustc-web cargo-web rust-web-src   (Debian 12 or later)"
    exit 1
fi
linker=$(command -v rust-lld || command -v wasm-ld || compgen -G "$sysroot/lib/rustlib/*/bin/rust-lld" | head -n 1 || true)
if [ -z "$linker" ]; then
    say "no WebAssembly linker: install Debian's lld, or a rustup toolchain (it brings rust-lld)"
    exit 1
fi
say "building with Debian's $(/usr/bin/rustc --version) and the standard library built from its sources"
# -Zbuild-std is how a target without a prebuilt standard library is built; RUSTC_BOOTSTRAP lets a stable compiler take it.
export RUSTC_BOOTSTRAP=1 RUSTC=/usr/bin/rustc CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="-Clinker=$linker"
unset RUSTUP_TOOLCHAIN
exec /usr/bin/cargo "${args[@]}" -Zbuild-std=std,panic_abort
