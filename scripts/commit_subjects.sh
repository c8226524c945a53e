#!/usr/bin/env bash
# Checks the subjects of commits: at most 72 characters, no full stop. Without an argument it reads the commits that
# origin (or main) does not have. The argument may be any range of git log, for example HEAD~5..HEAD.
set -euo pipefail
cd "$(dirname "$0")/.."
range=${1:-}
if [ -z "$range" ]; then
    base=$(git rev-parse --verify -q origin/main || git rev-parse --verify -q main)
    range=$base..HEAD
fi
git log --no-merges --format='%h %s' "$range" | awk '
    { subject = substr($0, index($0, " ") + 1) }
    length(subject) > 72 { print $1 ": " length(subject) " characters: " subject; broken = 1 }
    subject ~ /\.$/ { print $1 ": ends with a full stop: " subject; broken = 1 }
    END {
        if (broken) print "Shorten the subject: git rebase -i, reword. Details belong into the body."
        exit broken
    }'
