# Sourced by scripts/test.sh and scripts/test_rdma.sh: sections of a run of tests. Each section writes a log in
# $logs, says how long it took, and adds to `passed` and `failed`. A failure is printed in full where it happened,
# and by name at the very end.

# The folder of the logs. A run begins with an empty folder. A run that another run starts has one in the folder of that
# run ($GANNET_TEST_LOGS).
sections_begin() { # FOLDER
    logs=${GANNET_TEST_LOGS:-$1}
    names=$logs/failed.txt passed=0 failed=0
    if [ -z "${GANNET_TEST_LOGS:-}" ]; then
        rm -rf "$logs" && mkdir -p "$logs" || exit 1
    fi
    : >"$names"
}

log_name() { # NAME OF A SECTION
    echo "$(tr -cs '[:alnum:]\n' '-' <<<"$1").log"
}

# Runs a command into the section's log. Leaves its exit status in `status`.
section() { # NAME COMMAND...
    local from=$SECONDS
    echo "== $1"
    log=$logs/$(log_name "$1")
    "${@:2}" >"$log" 2>&1
    status=$?
    took=$((SECONDS - from))
}

took() {
    printf '   %s, %d min %02d s\n' "$1" $((took / 60)) $((took % 60))
}

# A check that counts as one test.
check() { # NAME COMMAND...
    section "$@"
    checked "$1"
}

# Counts a check by `status`, and prints its log if it failed.
checked() { # NAME
    if [ $status -eq 0 ]; then
        passed=$((passed + 1))
        took "passed"
        return
    fi
    failed=$((failed + 1))
    cat "$log"
    echo "$1 (exit $status)" >>"$names"
    took "FAILED"
}

# Prints the test binaries that took long.
slowest() {
    awk '/^ +(Running|Doc-tests) / { name = $2 == "unittests" ? $3 " " $4 : $2 }
        /^-- .* \(node [0-9]+, kernel / {
            name = $0
            sub(/^-- /, "", name); sub(/-[0-9a-f]+ /, " ", name); sub(/ *\(node.*/, "", name)
        }
        / finished in [0-9.]+s$/ {
            seconds = $NF
            sub(/s$/, "", seconds)
            if (seconds + 0 >= 20) printf "   %6.1f s  %s\n", seconds, name
        }' "$log" |
        sort -rn
}

# Begins a command, or a function, that has its own sections and prints its own failures. It runs beside the next
# sections, which must not depend on it. KEY is the folder of its logs.
declare -A nested_pids nested_from
nested_begin() { # KEY COMMAND...
    local of=$logs/$1
    rm -rf "$of" && mkdir -p "$of" || exit 1
    nested_from[$1]=$SECONDS
    GANNET_TEST_LOGS=$of "${@:2}" >"$of/output" 2>&1 &
    nested_pids[$1]=$!
    trap 'kill $(jobs -p) 2>/dev/null' EXIT
}

# Waits until the section of that command runs its first test binary: cargo has then let go of the lock of its folder.
# It does not wait for a command that has ended.
nested_runs() { # KEY NAME OF THE SECTION
    until grep -qs '^ *Running ' "$logs/$1/$(log_name "$2")" || ! kill -0 "${nested_pids[$1]}" 2>/dev/null; do
        sleep 0.2
    done
}

# Waits for the end of that command, and prints what it said.
nested_end() { # KEY NAME
    local of=$logs/$1 p=0 f=0 status=0
    wait "${nested_pids[$1]}" || status=$?
    echo "== $2 (beside the sections above)"
    cat "$of/output"
    cat "$of/failed.txt" >>"$names"
    [ -s "$of/counts" ] && read -r p f <"$of/counts"
    # The command ended before it wrote its counts.
    if [ ! -s "$of/counts" ] || { [ $status -ne 0 ] && [ "$f" -eq 0 ]; }; then
        f=$((f + 1))
        echo "$2 (exit $status)" >>"$names"
    fi
    passed=$((passed + p)) failed=$((failed + f))
    took=$((SECONDS - nested_from[$1]))
    took "$2"
}

# A run of tests; its counts are added up. A run that failed without a failed test counts as one failure.
tests() { # NAME COMMAND...
    local p f before
    section "$@"
    p=$(awk '/^test result:/ {n += $4} END {print n + 0}' "$log")
    f=$(awk '/^test result:/ {n += $6} END {print n + 0}' "$log")
    before=$(wc -l <"$names")
    if [ $status -ne 0 ]; then
        scripts/failures.py "$log" "$names" || cat "$log"
        [ "$(wc -l <"$names")" -gt "$before" ] || echo "$1 (exit $status)" >>"$names"
        # Binaries that died or could not be built are only in the list of names.
        before=$(($(wc -l <"$names") - before))
        [ "$f" -ge "$before" ] || f=$before
    elif [ $((p + f)) -eq 0 ]; then
        echo "no test ran"
        echo "$1 (no test ran)" >>"$names"
        f=1
    fi
    grep "^SKIPPED" "$log"
    slowest
    passed=$((passed + p)) failed=$((failed + f))
    took "$p passed, $f failed"
}

# Prints the names of the failures, the folder of the logs, and the closing line. A run within another one only
# writes its counts for that one.
sections_end() { # WHAT ELSE THE CLOSING LINE SAYS
    if [ -n "${GANNET_TEST_LOGS:-}" ]; then
        echo "$passed $failed" >"$logs/counts"
    else
        if [ -s "$names" ]; then
            printf '\nfailed (whole logs are in %s):\n' "$logs"
            sed 's/^/  /' "$names"
            echo
        fi
        echo "$passed passed, $failed failed${1:-}"
    fi
    [ "$failed" -eq 0 ]
}
