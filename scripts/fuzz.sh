#!/usr/bin/env bash
# Runs one fuzz target for some seconds: `scripts/fuzz.sh frames 600`. Without arguments it lists the targets. The
# stable compiler is enough (`-s none`: no sanitizer; bounds checks protect unsafe code). Interesting inputs are
# stored in fuzz/corpus/TARGET, inputs that crash in fuzz/artifacts/TARGET.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/needs.sh
if [ $# -eq 0 ]; then
    echo "usage: scripts/fuzz.sh TARGET [SECONDS]; the targets:"
    sed -n 's/^name = "\(.*\)"$/  \1/p' fuzz/Cargo.toml | grep -v gannet-fuzz
    exit 2
fi
target=$1 seconds=${2:-60}
need c++ g++
command -v cargo-fuzz >/dev/null 2>&1 || cargo install --locked cargo-fuzz
seeds=()
[ -d "fuzz/seeds/$target" ] && seeds=("fuzz/seeds/$target")
mkdir -p "fuzz/corpus/$target"
cargo fuzz run -s none "$target" "fuzz/corpus/$target" "${seeds[@]}" -- \
    -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=20 -print_final_stats=1
