#!/usr/bin/env bash
# Builds docs/ into a site with a search: target/book/html/index.html. mdBook is installed into target/mdbook when it is
# missing, which takes three minutes of CPU. scripts/book makes the pages of flags, metrics, waits, frames and source files
# anew each time.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/needs.sh
need cc gcc
need python3 python3
mdbook_version=0.5.4
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
if [ "$("$target/mdbook/bin/mdbook" --version 2>/dev/null || true)" != "mdbook v$mdbook_version" ]; then
    echo "installing mdbook $mdbook_version"
    cargo install --quiet --locked --force mdbook --version $mdbook_version --root "$target/mdbook" \
        --target-dir "$target/mdbook-build"
fi
gannet=${GANNET_BINARY:-}
if [ -z "$gannet" ]; then
    cargo build --quiet -p gannet-cli
    gannet=$target/debug/gannet
fi
mkdir -p "$target/book"
cp docs/book.toml "$target/book/book.toml"
python3 scripts/book/pages.py "$gannet" "$target/book/src"
"$target/mdbook/bin/mdbook" build "$target/book"
python3 scripts/book/links.py "$target/book/html"
echo "the book is in $target/book/html/index.html"
