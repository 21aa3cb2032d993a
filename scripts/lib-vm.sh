# The virtual machine (sourced after lib.sh): QEMU, virtme-ng, virtiofsd and Debian kernels, all
# pinned, and the shapes of machine that can be asked for.

VNG_VERSION=1.42
VIRTIOFSD_VERSION=1.14.0
DEFAULT_KERNEL=7.3.4
KERNELS='6.16.3 6.17.13 6.18.15 6.19.14 7.0.13 7.1.13 7.2.12 7.3.4'

# vm_shape NAME: prints CPUs and nodes as virtme-ng and QEMU take them, one argument a line.
vm_shape() {
    case $1 in
    # As many as the host may have: nothing waits for a real CPU.
    1n2) printf '%s\n' --cpus 2,sockets=1,cores=2 -m 3G ;;
    2n2)
        printf '%s\n' --cpus 2,sockets=2,cores=1 -m 3G --numa 1536M,cpus=0 --numa 1536M,cpus=1 \
            --numa-distance 0,1=21
        ;;
    1n4) printf '%s\n' --cpus 4,sockets=1,cores=4 -m 3G ;;
    2n8)
        printf '%s\n' --cpus 8,sockets=2,cores=4 -m 4G --numa 2G,cpus=0-3 --numa 2G,cpus=4-7 \
            --numa-distance 0,1=21
        ;;
    2u8)
        printf '%s\n' --cpus 8 -m 4G --numa 2G,cpus=0-1 --numa 2G,cpus=2-7 --numa-distance 0,1=21
        ;;
    4n4)
        printf '%s\n' --cpus 4,sockets=4,cores=1 -m 4G \
            --numa 1G,cpus=0 --numa 1G,cpus=1 --numa 1G,cpus=2 --numa 1G,cpus=3 \
            --numa-distance 0,1=12 --numa-distance 2,3=12 \
            --numa-distance 0,2=21 --numa-distance 0,3=21 \
            --numa-distance 1,2=21 --numa-distance 1,3=21
        ;;
    4n16)
        printf '%s\n' --cpus 16,sockets=4,cores=2,threads=2 -m 4G \
            --numa 1G,cpus=0-3 --numa 1G,cpus=4-7 --numa 1G,cpus=8-11 --numa 1G,cpus=12-15 \
            --numa-distance 0,1=12 --numa-distance 2,3=12 \
            --numa-distance 0,2=21 --numa-distance 0,3=21 \
            --numa-distance 1,2=21 --numa-distance 1,3=21
        ;;
    *) die "no shape \`$1\`; there are: $(vm_shapes)" ;;
    esac
}
vm_shapes() { echo '1n2 2n2 1n4 4n4 2n8 2u8 4n16'; }

kernel_image() { # kernel_image VERSION: path of its vmlinuz
    local dir="$CACHE/kernel/$1" release="$1+deb13-cloud-amd64" f
    for f in "$dir/usr/lib/modules/$release/vmlinuz" "$dir/boot/vmlinuz-$release"; do
        [ ! -e "$f" ] || { echo "$f"; return; }
    done
    return 1
}

fetch_kernel() {
    local version=$1 release="$1+deb13-cloud-amd64" dir="$CACHE/kernel/$1" tmp packages
    kernel_image "$version" >/dev/null && return
    case " $KERNELS " in
    *" $version "*) ;;
    *) die "kernel $version is not among those on offer: $KERNELS" ;;
    esac
    # Up to 6.18 one package holds it all; later it is split.
    case $version in
    6.1[678].*) packages="linux-image-$release" ;;
    *) packages="linux-binary-$release linux-modules-$release linux-base-$release" ;;
    esac
    say "fetching Debian's kernel $release (unpacked below the cache, not installed)"
    quietly "apt lists of trixie-backports" apt-kernel-lists.log \
        apt_private trixie-backports -- update
    tmp=$(mktemp -d "$CACHE/kernel-XXXXXX")
    # shellcheck disable=SC2086  # a list of package names
    (cd "$tmp" && quietly "packages" apt-kernel.log apt_private trixie-backports -- download $packages)
    mkdir "$tmp/root"
    for deb in "$tmp"/*.deb; do dpkg-deb -x "$deb" "$tmp/root"; done
    depmod -b "$tmp/root/usr" "$release"
    mkdir -p "$CACHE/kernel"
    rm -rf "$dir"
    mv "$tmp/root" "$dir"
    rm -rf "$tmp"
}

fetch_qemu() {
    local major
    # No QEMU at all is as good as an old one.
    major=$({ qemu-system-x86_64 --version 2>/dev/null || true; } | sed -n '1s/.*version \([0-9]*\).*/\1/p')
    [ "${major:-0}" -lt 10 ] || return 0
    # 7.2, Debian 12's own, crashes guests in multi-threaded emulation.
    say "installing QEMU 10 from bookworm-backports (to boot a sched_ext kernel)"
    quietly "apt lists of bookworm-backports" apt-qemu-lists.log \
        apt_private bookworm bookworm-updates bookworm-backports -- update
    quietly "packages" apt-qemu.log as_root env DEBIAN_FRONTEND=noninteractive bash -c \
        "$(declare -f apt_private debian_mirror die); CACHE='$CACHE'
         apt_private bookworm bookworm-updates bookworm-backports -- \
             install -y --no-install-recommends -t bookworm-backports qemu-system-x86"
}

vm_prepare() {
    mkdir -p "$CACHE"
    need_apt "the virtual machine's start-up" kmod udev busybox-static file zstd python3-venv
    fetch_qemu
    if [ ! -x "$CACHE/virtme-ng-$VNG_VERSION/bin/vng" ]; then
        say "fetching virtme-ng $VNG_VERSION (boots a kernel on the host's files)"
        quietly "venv" venv.log python3 -m venv "$CACHE/virtme-ng-$VNG_VERSION"
        quietly "pip install" vng.log \
            "$CACHE/virtme-ng-$VNG_VERSION/bin/pip" install "virtme-ng==$VNG_VERSION"
    fi
    if [ ! -x "$CACHE/virtiofsd-$VIRTIOFSD_VERSION/bin/virtiofsd" ]; then
        need_apt "virtiofsd" libseccomp-dev libcap-ng-dev
        say "building virtiofsd $VIRTIOFSD_VERSION (serves the host's files to the guest)"
        quietly "cargo install" virtiofsd.log cargo install --locked virtiofsd \
            --version "$VIRTIOFSD_VERSION" --root "$CACHE/virtiofsd-$VIRTIOFSD_VERSION"
    fi
    fetch_kernel "$1"
}

# vng with what it needs on its path.
vng() {
    PATH="$CACHE/virtme-ng-$VNG_VERSION/bin:$CACHE/virtiofsd-$VIRTIOFSD_VERSION/bin:$PATH" \
        command vng "$@"
}

# Whether KVM really runs a guest: a device file proves nothing, so one is booted, once.
kvm_works() {
    local verdict="$CACHE/kvm-verdict-$(uname -r)"
    if [ ! -e "$verdict" ]; then
        echo no >"$verdict"
        if [ -w /dev/kvm ] && timeout 30 bash -c "$(declare -f vng)
            CACHE='$CACHE' VNG_VERSION=$VNG_VERSION VIRTIOFSD_VERSION=$VIRTIOFSD_VERSION
            vng -r '$(kernel_image "$1")' --cpus 2 -m 1G --user root -- true" \
            >"$CACHE/log/kvm.log" 2>&1 </dev/null; then
            echo yes >"$verdict"
        fi
    fi
    [ "$(cat "$verdict")" = yes ]
}

# What is said, and the exit status, where the machine ended (or never came up) under a command.
VM_ENDED='the virtual machine ended before the command did'
VM_ENDED_STATUS=125

# Seconds until a machine that has not started its command counts as hung; a boot takes a quarter.
BOOT_PATIENCE=120

# vm_boot DIR VNG-ARGS…: runs vng until it ends. False if the machine hung on its way up, as an
# emulated one now and then does; it has been stopped then.
vm_boot() {
    local dir=$1 pid tail_pid waited=0
    shift
    # A process group of its own, so that all of it can be stopped. The pipe: QEMU opens its standard
    # output by name, which would truncate a file.
    set -m
    { vng "$@" 2> >(grep -v 'exceeds the recommended cpus' >&2) </dev/null | cat; } &
    pid=$!
    set +m
    # The guest's standard error comes by a file: vng would keep it until the end.
    : >"$dir/stderr"
    tail -n +1 -s 0.2 -f --pid=$pid "$dir/stderr" >&2 &
    tail_pid=$!
    # shellcheck disable=SC2064  # this machine's group
    trap "kill -- -$pid 2>/dev/null; rm -rf '$dir'" EXIT
    while [ ! -e "$dir/started" ] && kill -0 $pid 2>/dev/null && [ $waited -lt $BOOT_PATIENCE ]; do
        sleep 1
        waited=$((waited + 1))
    done
    if [ ! -e "$dir/started" ] && kill -- -$pid 2>/dev/null; then
        wait $pid || true
        trap - EXIT
        return 1
    fi
    wait $pid || true
    wait $tail_pid || true
    trap - EXIT
}

# vm_run SHAPE KERNEL APPEND COMMAND…: boots, runs, returns the command's status.
vm_run() {
    local shape=$1 kernel=$2 append=$3 args status dir try
    shift 3
    args=$(vm_shape "$shape")
    mapfile -t args <<<"$args"
    mkdir -p "$CACHE/log"
    kvm_works "$kernel" || args+=(--disable-kvm)
    [ -z "$append" ] || args+=(--append "$append")
    # The command travels in a file: quoting survives, and so does its status.
    dir=$(mktemp -d "${TMPDIR:-/tmp}/baton-vm-XXXXXX")
    # What the kernel says when it dies: vng throws its console away.
    args+=(--qemu-opts="-set chardev.console.path=$dir/console")
    {
        echo '#!/bin/bash'
        echo ": >$(printf %q "$dir/started")"
        echo "exec 2>>$(printf %q "$dir/stderr")"
        echo "cd $(printf %q "$PWD")"
        echo "export PATH=$(printf %q "$PATH") HOME=$(printf %q "$HOME") BATON_IN_VM=1"
        echo "ulimit -n 65536"
        printf '%q ' "$@"
        printf '\necho $? >%q\n' "$dir/status"
    } >"$dir/command"
    chmod +x "$dir/command"
    for try in 1 2 3; do
        ! vm_boot "$dir" -r "$(kernel_image "$kernel")" "${args[@]}" --user root --rwdir "$ROOT" \
            --rwdir "$dir" -- "$dir/command" || break
        echo "note: the virtual machine did not come up (boot $try of 3)" >&2
    done
    status=$(cat "$dir/status" 2>/dev/null || echo "$VM_ENDED_STATUS")
    if [ "$status" = "$VM_ENDED_STATUS" ]; then
        echo "error: $VM_ENDED; the end of its console:" >&2
        tail -n 40 "$dir/console" >&2 || true
    fi
    rm -rf "$dir"
    return "$status"
}
