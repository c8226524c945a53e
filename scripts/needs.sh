# Sourced: makes sure that a tool is there, by the system's package manager when it is missing.

need() { # need COMMAND PACKAGE
    command -v "$1" >/dev/null 2>&1 && return 0
    echo "installing $2 (for $1)"
    if command -v apt-get >/dev/null 2>&1; then
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$2" >/dev/null
    elif command -v dnf >/dev/null 2>&1; then
        dnf install -y -q "$2"
    elif command -v apk >/dev/null 2>&1; then
        apk add -q "$2"
    else
        echo "$1 is missing and no package manager is known here: install $2" >&2
        return 1
    fi
}
