# Sourced by softroce-vm: Debian's packages for the guests, downloaded and unpacked, none installed.
#
#   $cache/apt-*              an apt configuration of its own: it does not use the host's lists and sources
#   $cache/base/qemu          QEMU and the libraries it needs      $cache/base/tools    RDMA tools for the guests
#   $cache/kernel-stable      Debian 12's kernel                   $cache/kernel-backports    that of its backports
# Each is made beside its place and renamed when it is complete. A change of `format` makes all of them again.
format=1
mirror=${SOFTROCE_MIRROR:-http://deb.debian.org/debian}
suite=bookworm

qemu_packages="qemu-system-x86 qemu-system-common qemu-system-data seabios ipxe-qemu libcapstone4 libdaxctl1 libfdt1
 libndctl6 libpmem1 libslirp0 libvdeplug2 libaio1 libfuse3-3 liburing2 libnuma1 libpng16-16 libpixman-1-0
 libjpeg62-turbo libsasl2-2 libseccomp2 libbpf1 libglib2.0-0 libkmod2 kmod cpio libibverbs1 librdmacm1 libnl-3-200
 libnl-route-3-200"
tool_packages="busybox-static rdma-core libibverbs1 librdmacm1 libibumad3 ibverbs-providers ibverbs-utils rdmacm-utils
 iproute2 libnl-3-200 libnl-route-3-200 libpci3 libmnl0 libbpf1 libelf1"
modules="virtio_pci virtio_net virtio_console 9p 9pnet_virtio overlay dummy veth loop ext4 crc32_generic crc32c_generic
 libcrc32c ib_uverbs rdma_ucm rdma_rxe"

apt() { # COMMAND [ARGS...]: apt-get or apt-cache with the configuration of the cache
    local tool=$1 of=$cache/apt-$kernel
    shift
    timeout 900 "$tool" -q -o APT::Sandbox::User=root -o Acquire::Retries=3 -o APT::Architecture=amd64 \
        -o Dir::Etc::SourceList="$of/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
        -o Dir::State="$of/state" -o Dir::State::Status="$of/status" -o Dir::Cache="$of/cache" "$@"
}

configure_apt() { # the lists are read anew when they are older than a day
    local of=$cache/apt-$kernel signed=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -f "$of/read" ] && [ -n "$(find "$of/read" -mtime -1)" ] && return 0
    [ -f $signed ] || { say "$signed is missing: install debian-archive-keyring"; return 1; }
    mkdir -p "$of/state/lists/partial" "$of/cache/archives/partial"
    : >"$of/status"
    {
        echo "deb [signed-by=$signed] $mirror $suite main"
        [ "$kernel" != backports ] || echo "deb [signed-by=$signed] $mirror $suite-backports main"
    } >"$of/sources.list"
    apt apt-get update >"$of/log" 2>&1 || { tail -n 5 "$of/log" >&2; return 1; }
    ! grep -qE '^(E|Err|W: Failed)' "$of/log" || { grep -E '^(E|Err|W: Failed)' "$of/log" | tail -n 5 >&2; return 1; }
    touch "$of/read"
}

fetch() { # FOLDER PACKAGE...
    local to=$1
    shift
    mkdir -p "$to"
    (cd "$to" && apt apt-get download "$@" >apt.log 2>&1) || { tail -n 5 "$to/apt.log" >&2; return 1; }
}

unpack() { # FOLDER-OF-PACKAGES ROOT; /bin, /sbin and /lib go into /usr, so that the overlay keeps the host's links
    local package part
    mkdir -p "$2"
    for package in "$1"/*.deb; do dpkg-deb -x "$package" "$2" || return 1; done
    for part in bin sbin lib; do
        [ -d "$2/$part" ] && [ ! -L "$2/$part" ] || continue
        mkdir -p "$2/usr/$part"
        cp -a "$2/$part/." "$2/usr/$part/" && rm -rf "${2:?}/$part"
    done
}

of_base() { # COMMAND...: with the libraries of the unpacked QEMU
    LD_LIBRARY_PATH=$cache/base/qemu/usr/lib/x86_64-linux-gnu "$@"
}

kmod() { # NAME [ARGS...]: depmod and modprobe are names of one program; the package's links would lead to the host's
    local name=$1
    shift
    (LD_LIBRARY_PATH=$cache/base/qemu/usr/lib/x86_64-linux-gnu exec -a "$name" "$cache/base/qemu/usr/bin/kmod" "$@")
}

make_base() { # FOLDER
    say "the first time: QEMU and the RDMA tools are downloaded into $cache"
    fetch "$1/debs/qemu" $qemu_packages && fetch "$1/debs/tools" $tool_packages || return 1
    unpack "$1/debs/qemu" "$1/qemu" && unpack "$1/debs/tools" "$1/tools" || return 1
    rm -rf "$1/debs" "$1/tools/usr/share/doc" "$1/tools/usr/share/man"
    local missing
    missing=$(LD_LIBRARY_PATH=$1/qemu/usr/lib/x86_64-linux-gnu ldd "$1/qemu/usr/bin/qemu-system-x86_64" | awk '/not found/ { print $1 }')
    [ -z "$missing" ] || { say "QEMU lacks: $missing"; return 1; }
}

make_kernel() { # FOLDER KIND
    local to=$1 from=$suite package version
    [ "$2" = stable ] || from=$suite-backports
    # "Depends: linux-image-6.1.0-37-amd64 (= 6.1.140-1)", of the version in that suite
    package=$(apt apt-cache show "linux-image-amd64/$from" | grep -oE 'linux-image-[0-9][^ ,]*-amd64' | head -n 1)
    [ -n "$package" ] || { say "$from has no linux-image-amd64"; return 1; }
    version=${package#linux-image-}
    say "the first time: the kernel $version is downloaded into $cache"
    fetch "$to/debs" "$package" && unpack "$to/debs" "$to/tree" || return 1
    unpack_vmlinux "$to/tree/boot/vmlinuz-$version" "$to" && copy_modules "$to" "$version" || return 1
    rm -rf "$to/debs" "$to/tree"
    echo "$version" >"$to/version"
}

# The unpacked kernel: unpacking itself would take 6 s in emulation.
unpack_vmlinux() { # VMLINUZ FOLDER
    local sectors offset length
    sectors=$(od -An -tu1 -j497 -N1 "$1") offset=$(od -An -tu4 -j584 -N4 "$1") length=$(od -An -tu4 -j588 -N4 "$1")
    tail -c +$(((sectors + 1) * 512 + offset + 1)) "$1" | head -c "$length" >"$2/payload"
    case $(od -An -tx1 -N4 "$2/payload") in
        *fd*37*7a*58) xz -dc --single-stream <"$2/payload" >"$2/vmlinux" 2>/dev/null ;;
        *28*b5*2f*fd) head -c -4 "$2/payload" | zstd -qdc >"$2/vmlinux" 2>/dev/null ;;
    esac
    rm -f "$2/payload"
    [ "$(head -c4 "$2/vmlinux" 2>/dev/null | tail -c3)" = ELF ] || { say "$1 cannot be unpacked (is zstd installed?)"; return 1; }
}

copy_modules() { # FOLDER VERSION: those that are needed, named in the order in which they are loaded
    local tree=$1/tree list file name n=0
    rm -rf "$1/mods"
    mkdir -p "$1/mods"
    [ -d "$tree/lib" ] || ln -s usr/lib "$tree/lib"
    kmod depmod -b "$tree" "$2" || return 1
    list=$(for module in $modules; do
        kmod modprobe -d "$tree" -S "$2" --show-depends "$module" || exit 1
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }') || { say "kernel $2 lacks a module"; return 1; }
    while read -r file; do
        printf -v name '%03d-%s' $((n++)) "${file##*/}"
        case $name in
            *.xz) xz -dc "$file" >"$1/mods/${name%.xz}" ;;
            *) cp "$file" "$1/mods/$name" ;;
        esac || return 1
    done <<<"$list"
}

make_initrd() { # KERNEL-FOLDER: the modules, busybox and guest-init; anew when guest-init has changed
    local to=$1 root=$1/.initrd sum
    sum=$(sha1sum <"$here/guest-init")
    [ "$(cat "$to/initrd.sum" 2>/dev/null)" = "$sum" ] && return 0
    rm -rf "$root"
    mkdir -p "$root"/{bin,proc,sys,dev,lower,ovl,newroot}
    cp "$cache/base/tools/usr/bin/busybox" "$root/bin/" && cp -r "$to/mods" "$root/mods" || return 1
    cp "$here/guest-init" "$root/init" && chmod 755 "$root/init"
    (cd "$root" && find . | of_base "$cache/base/qemu/usr/bin/cpio" -o -H newc -R 0:0 --quiet >"$to/initrd.tmp") || return 1
    mv "$to/initrd.tmp" "$to/initrd" && echo "$sum" >"$to/initrd.sum"
    rm -rf "$root"
}

# NAME FUNCTION [ARGS...]: makes $cache/NAME by FUNCTION FOLDER [ARGS...], if it is not there.
have() {
    local name=$1 make=$2 new=$cache/.new.$$
    shift 2
    [ "$(cat "$cache/$name/format" 2>/dev/null)" = $format ] && return 0
    rm -rf "$cache"/.new.* "${cache:?}/$name"
    mkdir -p "$new"
    "$make" "$new" "$@" && echo $format >"$new/format" && mv "$new" "$cache/$name"
}

fill_cache() { # KIND
    if [ "$(cat "$cache/base/format" "$cache/kernel-$1/format" 2>/dev/null | tr -d '\n')" != "$format$format" ]; then
        configure_apt || return 1
    fi
    have base make_base && have "kernel-$1" make_kernel "$1" && make_initrd "$cache/kernel-$1"
}
