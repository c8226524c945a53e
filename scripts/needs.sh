# Sourced: installs a missing tool or library with the system's package manager.

# Packages of the three package managers that are known here; a list may be several names.
install() { # install WHAT APT DNF APK
    echo "installing $2 (for $1)"
    if command -v apt-get >/dev/null 2>&1; then
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $2 >/dev/null
    elif command -v dnf >/dev/null 2>&1; then
        dnf install -y -q $3
    elif command -v apk >/dev/null 2>&1; then
        apk add -q $4
    else
        echo "$1 is missing, and this system has no known package manager: install $2" >&2
        return 1
    fi
}

need() { # need COMMAND PACKAGE
    command -v "$1" >/dev/null 2>&1 || install "$1" "$2" "$2" "$2"
}

# What the features `rdma` (the libraries' headers) and `rdma-dlopen` (cmake) are built with; both read C headers by
# libclang.
need_rdma() {
    need pkg-config pkg-config && need cmake cmake || return 1
    pkg-config --exists libibverbs librdmacm ||
        install "libibverbs and librdmacm" "libibverbs-dev librdmacm-dev" rdma-core-devel rdma-core-dev || return 1
    [ -n "${LIBCLANG_PATH:-}" ] || [ -n "$(find /usr/lib /usr/lib64 /usr/local/lib -name 'libclang.so*' -print -quit 2>/dev/null)" ] ||
        [ -n "$(find /usr/lib /usr/lib64 /usr/local/lib -name 'libclang-[0-9]*.so*' -print -quit 2>/dev/null)" ] ||
        install libclang libclang-dev clang-devel clang-dev
}

# The server of ssh, which tests start on loopback.
need_sshd() {
    need ssh openssh-client || return 1
    [ -x /usr/sbin/sshd ] || command -v sshd >/dev/null 2>&1 || install sshd openssh-server openssh-server openssh
}

# What the wheel and its tests are built with.
need_python() {
    need python3 python3 && need cc gcc && need strip binutils || return 1
    python3 -c 'import ensurepip, venv' 2>/dev/null ||
        install "Python's environments" python3-venv python3 python3 || return 1
    # Tests in Rust are linked with the library of Python.
    command -v python3-config >/dev/null 2>&1 || install "Python's library" python3-dev python3-devel python3-dev
}

# The server that the tests of the feature `etcd` start.
need_etcd() {
    command -v etcd >/dev/null 2>&1 || install etcd etcd-server etcd etcd
}
