# Shared by the scripts in this folder (sourced, bash): where things are cached, how
# packages are found, and how progress is shown. It changes nothing when sourced.

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${SCX_BATON_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/scx_baton}

# The one compiler that builds the BPF side; scx_cargo reads BPF_CLANG.
LLVM_VERSION=19
export BPF_CLANG=${BPF_CLANG:-clang-$LLVM_VERSION}

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# Runs "$@" with its output in a log file; shows one line that grows a dot every few seconds
# so that a long step is seen to live. On failure the end of the log is shown.
quietly() { # quietly LABEL LOGNAME COMMAND...
    local label=$1 log="$CACHE/log/$2" start=$SECONDS
    shift 2
    mkdir -p "$CACHE/log"
    printf '    %s ' "$label" >&2
    "$@" >"$log" 2>&1 </dev/null &
    local pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        sleep 1
        if (((SECONDS - start) % 5 == 0)); then printf '.' >&2; fi
    done
    if wait "$pid"; then
        printf ' %ss\n' "$((SECONDS - start))" >&2
    else
        printf ' failed\n' >&2
        tail -n 25 "$log" >&2
        die "$label failed; the whole log is $log"
    fi
}

# need_apt WHY PACKAGE...: installs what is missing from the machine's own release.
need_apt() {
    local why=$1 p missing=()
    shift
    for p in "$@"; do
        dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null | grep -qx installed || missing+=("$p")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    say "installing ${missing[*]} ($why)"
    apt_lists_fresh
    # Configuration is not touched and no service is started on the host for our sake.
    quietly "apt-get install" "apt-${missing[0]}.log" \
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
}

apt_lists_fresh() {
    [ -z "${APT_LISTS_FRESH:-}" ] || return 0
    quietly "apt-get update" apt-update.log as_root apt-get update
    APT_LISTS_FRESH=1
}

# Debian's mirror as this machine's own apt configuration names it.
debian_mirror() {
    apt-get indextargets --format '$(CREATED_BY) $(COMPONENT) $(RELEASE) $(SITE)' |
        awk '$1 == "Packages" && $2 == "main" && $3 !~ /security/ { print $4; exit }' |
        grep . || die "apt knows no Debian mirror here; add one to its sources, then run apt-get update"
}

# apt_private RELEASE... -- APT-GET-ARGS: apt-get with private lists that hold the named
# releases; the machine's own lists and sources are left as they are.
apt_private() {
    local dir="$CACHE/apt" mirror release
    mkdir -p "$dir"/{lists/partial,archives/partial,empty}
    mirror=$(debian_mirror)
    : >"$dir/sources.list"
    while [ "$1" != -- ]; do
        release=$1
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main" >>"$dir/sources.list"
        shift
    done
    shift
    apt-get -o Dir::Etc::SourceList="$dir/sources.list" -o Dir::Etc::SourceParts="$dir/empty" \
        -o Dir::State::Lists="$dir/lists" -o Dir::Cache="$dir" -o APT::Sandbox::User=root \
        -o Dir::Etc::PreferencesParts="$dir/empty" "$@"
}

# What building needs (Debian names), and why: clang for the BPF side, libclang for bindgen,
# libelf and zlib for libbpf, libseccomp and pkg-config for scx_rustland_core.
BUILD_PACKAGES=(
    "clang-$LLVM_VERSION" "libclang-$LLVM_VERSION-dev" "llvm-$LLVM_VERSION" gcc make git
    libelf-dev zlib1g-dev libseccomp-dev pkg-config ca-certificates
)

# Everything that is built in release mode, up to date.
build_release() {
    need_apt "building" "${BUILD_PACKAGES[@]}"
    quietly "cargo build" build.log cargo build --release --bins --examples
}
