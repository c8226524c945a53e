#!/usr/bin/env bash
# Compares pulls and pushes over RDMA and tcp. It runs `gannet bench`, a release build with the feature rdma, over each
# transport in turn for a few rounds, in one guest with soft-RoCE (tests/softroce/softroce-vm).
# The guest's processors are emulated and its RDMA device is software. So its rates mean nothing, and the ratios little
# more. The counts are valid: the server's CPU time, and the share of rows read without a request.
# With GANNET_RDMA_DEVICE=name it runs on that device of this machine instead, where all numbers are valid.
#
#   bench/runs/rdma.sh [--rounds N] [--kernel stable|backports] [further flags of gannet bench]
set -euo pipefail
cd "$(dirname "$0")/../.."

# The guest's part: runs all transports in turn and writes each result into a folder.
if [ "${1:-}" = --inside ]; then
    binary=$2 out=$3 rounds=$4
    shift 4
    for round in $(seq "$rounds"); do
        while read -r name flags; do
            # shellcheck disable=SC2086
            timeout 600 "$binary" bench --json $flags "$@" >"$out/$round.$name.json" </dev/null
            echo "round $round of $rounds: $name"
        done <<WAYS
tcp --transport tcp
verbs-requests --transport verbs --one-sided never
verbs-read --transport verbs --one-sided always
WAYS
    done
    exit
fi

rounds=3 kernel=stable
while [ $# -gt 0 ]; do
    case $1 in
        --rounds) rounds=$2; shift 2 ;;
        --kernel) kernel=$2; shift 2 ;;
        *) break ;;
    esac
done
# Small enough for an emulated processor. Later flags of the same name override these.
[ $# -gt 0 ] || set -- --dims 1,16 --rows 20000 --batch 2048 --seconds 2 --threads 1

. scripts/needs.sh
need cc gcc && need_rdma || exit 1
cargo build --release --features rdma
binary=$(readlink -f "${CARGO_TARGET_DIR:-target}/release/gannet")
work=$(mktemp -d "${TMPDIR:-/tmp}/gannet-bench-rdma.XXXXXX")
trap 'rm -rf "$work"' EXIT
if [ -n "${GANNET_RDMA_DEVICE:-}" ]; then
    bench/runs/rdma.sh --inside "$binary" "$work" "$rounds" "$@"
else
    tests/softroce/softroce-vm --kernel "$kernel" --timeout 3000 --share "$work" -- \
        bash "$PWD/bench/runs/rdma.sh" --inside "$binary" "$work" "$rounds" "$@"
fi
echo "gannet bench $*; $rounds rounds, medians (lowest-highest)"
python3 - "$work" <<'PYTHON'
import glob, json, statistics, sys

WAYS = [("tcp", "tcp"), ("verbs-requests", "verbs, rows requested"), ("verbs-read", "verbs, rows read")]
COLUMNS = ["way", "dim", "pull / tcp's", "push / tcp's", "64 keys p50 / tcp's", "rows read without asking",
           "server CPU ms / M pulled", "the server's cores meanwhile", "at rest, linked", "server CPU ms / M pushed"]

def answers(way):
    found = []
    for path in sorted(glob.glob(f"{sys.argv[1]}/*.{way}.json")):
        with open(path) as file:
            answer = json.load(file)
        found.append(answer["tcp" if way == "tcp" else "verbs"])
    return found

def spread(values, digits=2):
    middle = statistics.median(values)
    return f"{middle:.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"

print("| " + " | ".join(COLUMNS) + " |")
print("|" + "---|" * len(COLUMNS))
tcp = answers("tcp")
for dim in tcp[0]:
    for way, name in WAYS:
        here = answers(way)
        ratio = lambda field: spread([a[dim][field] / b[dim][field] for a, b in zip(here, tcp)])
        of = lambda field, digits: spread([a[dim][field] for a in here], digits)
        share = statistics.median(a[dim]["pull_one_sided"] for a in here)
        cells = [name, dim[3:], ratio("pull_keys_per_s"), ratio("push_keys_per_s"), ratio("pull64_us_p50"),
                 f"{share:.1%}", of("pull_server_cpu_ms_per_million", 0),
                 of("pull_server_cores", 3), of("idle_server_cores", 3), of("push_server_cpu_ms_per_million", 0)]
        print("| " + " | ".join(cells) + " |")
PYTHON
