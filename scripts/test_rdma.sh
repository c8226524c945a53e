#!/usr/bin/env bash
# The tests of RDMA on real verbs: the unit tests verbs::hostile* and tests/verbs*.rs of transport, and those of
# tests/servers/guests. They are built with the feature `rdma-dlopen`; those of transport with the feature `rdma`, too.
# They run in guests that have soft-RoCE (tests/softroce/softroce-vm: QEMU, no KVM): in one guest, and those named *pair*
# in two that are connected; on Debian 12's kernel and, if available, that of its backports.
#     scripts/test_rdma.sh
#     scripts/test_rdma.sh --build, then scripts/test_rdma.sh --built
# With GANNET_RDMA_DEVICE=name they run on that device of this machine instead, pairs as two processes.
# The last line is `N passed, N failed`. For what could not run, a line begins with SKIPPED.
set -uo pipefail
cd "$(dirname "$0")/.."

# The guest's part: runs the binaries of a list with lines of FOLDER BINARY ARGUMENTS.
if [ "${1:-}" = --list ]; then
    status=0
    while read -r folder binary arguments; do
        echo "-- ${binary##*/} $arguments (node ${NODE_RANK:-0}, kernel $(uname -r))"
        (cd "$folder" && timeout -k 5 "${3:-300}" "$binary" $arguments --test-threads=1 </dev/null) || status=1
    done <"$2"
    exit $status
fi

. scripts/needs.sh
need cc gcc && need python3 python3 && need_rdma && need_etcd || exit 1
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
# What runs: FEATURE.one and FEATURE.pair.
lists=$target/rdma-tests
mkdir -p "$lists" || exit 1

# Prints FOLDER BINARY for each test binary of our packages, from cargo's JSON output.
executables() {
    python3 -c '
import json, os, sys
for line in sys.stdin:
    message = json.loads(line) if line.startswith("{") else {}
    if message.get("executable") and message["profile"]["test"]:
        print(os.path.dirname(message["manifest_path"]), message["executable"])'
}

# What is built for a feature. `rdma-dlopen`: the same as test.sh, so nothing is built twice. `rdma`: gannet-transport,
# where alone it matters how the library is found, and the features of gannet-cli. Without these, dependencies would get
# other features and be built again.
selection() { # FEATURE
    case $1 in
        rdma) echo -p gannet-transport -p gannet-cli --features gannet-transport/rdma,gannet-cli/rdma,gannet-cli/etcd ;;
        *) echo --workspace --features gannet-cli/etcd,gannet-cli/grpc,gannet-cli/rdma-dlopen --test servers ;;
    esac
}

# Builds and lists the test binaries of a feature.
build() { # FEATURE
    local folder binary servers='' one=$lists/$1.one pair=$lists/$1.pair
    : >"$one" >"$pair"
    cargo test --no-run --color never --message-format json-render-diagnostics $(selection "$1") \
        --lib --test verbs --test verbs_device >"$lists/built" || return 1
    while read -r folder binary; do
        case ${binary##*/} in
            gannet_transport-*)
                echo "$folder $binary verbs::hostile --skip hostile_pair" >>"$one"
                [ "$1" = rdma ] || echo "$folder $binary verbs::hostile_pair" >>"$pair"
                ;;
            verbs*) echo "$folder $binary" >>"$one" ;;
            servers-*) servers="$folder $binary" ;;
        esac
    done < <(executables <"$lists/built")
    if [ -n "$servers" ]; then
        echo "$servers guests::doctor:: guests::one_sided::" >>"$one"
        # guests::pair is last. It cuts the network, and soft-RoCE of kernel 6.1 survives that only if no process sends
        # at the same time (docs/transports.md).
        printf '%s\n' "$servers guests::pair_killed::" "$servers guests::pair_doctor::" "$servers guests::pair::" >>"$pair"
    fi
    [ -s "$one" ]
}

if [ "${1:-}" = --build ]; then
    build rdma-dlopen && build rdma
    exit
fi
. scripts/sections.sh
sections_begin "$target/test-logs-rdma"
# The guests see this folder, which need not be so of $TMPDIR: each guest has a /dev and a /run of its own.
work=$(mktemp -d "$target/rdma.XXXXXX") || exit 1
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$work"' EXIT
skipped=0

skip() {
    skipped=$((skipped + 1))
    echo "SKIPPED: $*"
}

# Of two guests, each has one processor. With two each, the emulators need half as much CPU again: the guest's processors
# wait for each other, and their atomic operations are emulated as such.
vm=tests/softroce/softroce-vm
in_guests() { # KERNEL NODES LIST
    local pair
    pair=$(mktemp -d "$work/pair.XXXXXX") || return 1
    "$vm" --kernel "$1" --nodes "$2" --cpus $((3 - $2)) --timeout 900 --fail-grace 60 --share "$pair" \
        --env "GANNET_PAIR_DIR=$pair" -- bash "$PWD/scripts/test_rdma.sh" --list "$3" 400
}

# Begins a run in one guest in the background. QEMU without KVM keeps one core busy, so two such runs go on at the same
# time. (Two runs in two guests take as long as one after the other.)
begin_one() { # FEATURE KERNEL
    in_guests "$2" 1 "$lists/$1.one" >"$work/$1.out" 2>&1 &
    echo $! >"$work/$1.pid"
}

# Waits for the end of that run.
end_one() { # FEATURE
    local status=0
    wait "$(cat "$work/$1.pid")" || status=$?
    cat "$work/$1.out"
    return $status
}

pair_here() { # LIST: the two nodes as two processes of this machine
    local status=0 other
    mkdir -p "$work/pair" && rm -rf "$work/pair/"*
    export GANNET_PAIR_DIR=$work/pair NODE_COUNT=2 NODE_IP=$address PEER_IP=$address
    NODE_RANK=1 scripts/test_rdma.sh --list "$1" & other=$!
    NODE_RANK=0 scripts/test_rdma.sh --list "$1" || status=1
    wait $other || status=1
    return $status
}

# A run on a device or in guests: a guest's lines are marked with its number.
on_device() { # COMMAND...
    local status=0
    "$@" >"$work/device.out" 2>&1 || status=$?
    sed 's/^\[[01]\] //' "$work/device.out"
    return $status
}

count() { # NAME COMMAND...
    tests "$1" on_device "${@:2}"
    tail -n 1 "$log" | grep '^softroce-vm: kernel' | sed 's/^/   /'
}

if [ "${1:-}" != --built ]; then
    for feature in rdma-dlopen rdma; do
        check "build with --features $feature" build $feature
    done
fi
# The build has failed, and its output was printed.
[ -s "$lists/rdma-dlopen.one" ] && [ -s "$lists/rdma.one" ] || { sections_end; exit 1; }

if [ -n "${GANNET_RDMA_DEVICE:-}" ]; then
    # The address of the device's interface, with which rdma_cm finds the device.
    interface=$(cat "/sys/class/infiniband/$GANNET_RDMA_DEVICE/ports/1/gid_attrs/ndevs/"* 2>/dev/null | head -n 1)
    address=$(ip -o -4 addr show dev "${interface:-none}" 2>/dev/null | awk '{ sub("/.*", "", $4); print $4; exit }')
    if [ -z "$address" ]; then
        echo "FAILED: $GANNET_RDMA_DEVICE does not exist, or its interface has no IPv4 address"
        echo "rdma: the device $GANNET_RDMA_DEVICE" >>"$names"
        failed=$((failed + 1))
    else
        for feature in rdma rdma-dlopen; do
            count "$feature on $GANNET_RDMA_DEVICE" env "NODE_IP=$address" scripts/test_rdma.sh --list "$lists/$feature.one"
        done
        [ ! -s "$lists/rdma-dlopen.pair" ] || count "pairs on $GANNET_RDMA_DEVICE" pair_here "$lists/rdma-dlopen.pair"
    fi
else
    kernels=()
    for kernel in backports stable; do
        $vm --kernel $kernel --prepare 2>"$work/why"
        case $? in
            0) kernels+=($kernel) ;;
            69) skip "guests with the kernel $kernel: $(tail -n 1 "$work/why")" ;;
            *)
                cat "$work/why"
                echo "rdma: guests with the kernel $kernel" >>"$names"
                failed=$((failed + 1))
                ;;
        esac
    done
    # The tests in one guest run once a feature. The features have a kernel each where both kernels are available.
    if [ ${#kernels[@]} -gt 0 ]; then
        begin_one rdma-dlopen "${kernels[0]}"
        begin_one rdma "${kernels[-1]}"
        count "rdma-dlopen in one guest, kernel ${kernels[0]}" end_one rdma-dlopen
        count "rdma in one guest, kernel ${kernels[-1]}" end_one rdma
    fi
    for kernel in "${kernels[@]}"; do
        [ ! -s "$lists/rdma-dlopen.pair" ] || count "rdma-dlopen in two guests, kernel $kernel" in_guests $kernel 2 "$lists/rdma-dlopen.pair"
    done
fi

closing=
[ $skipped -eq 0 ] || closing=", $skipped skipped"
sections_end "$closing"
