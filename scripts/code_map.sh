#!/usr/bin/env bash
# Prints each source file with the first sentence of its documentation, by folder: `scripts/code_map.sh [FOLDER ..]`.
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files -- "${@:-.}" | grep -E '(^|/)src/.*\.rs$' | grep -v '_tests\.rs$' | sed -E 's,(.*)/,\1/\t,' | sort | tr -d '\t' | while read -r file; do
    folder=$(dirname "$file")
    if [ "$folder" != "${last:-}" ]; then
        printf '\n%s/\n' "$folder"
        last=$folder
    fi
    # Documentation of a file begins in its first line, and its first sentence may take several lines.
    words=$(awk '!/^\/\/!/ { exit } { sub(/^\/\/! ?/, ""); if ($0 == "") exit; printf "%s ", $0 }' "$file")
    printf '  %-32s %s\n' "$(basename "$file")" "$(sed -E 's/([.]) .*/\1/; s/ $//' <<<"$words")"
done
