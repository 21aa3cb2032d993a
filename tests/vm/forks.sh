# new tasks start on their parent's node up to the limit of numa-imbalance, and beyond it where more CPUs idle
cat >"$WORK/forks.py" <<'PY'
import ctypes, os, sys, time
nodes = {}
base = "/sys/devices/system/node"
for entry in os.listdir(base):
    if entry.startswith("node") and entry[4:].isdigit():
        for cpu in os.listdir(f"{base}/{entry}"):
            if cpu.startswith("cpu") and cpu[3:].isdigit():
                nodes[int(cpu[3:])] = int(entry[4:])
here = lambda: nodes[ctypes.CDLL(None).sched_getcpu()]

def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end: pass

def fork(child):
    """The node on which a forked task starts and that of its parent."""
    r, w = os.pipe()
    home = here()
    pid = os.fork()
    if pid == 0:
        os.write(w, bytes([here()]))
        child()
        os._exit(0)
    os.close(w)
    return pid, r, home

def one_by_one(times):
    """Children that end before the next one is forked; how many began on another node."""
    away = 0
    for _ in range(times):
        pid, r, home = fork(lambda: None)
        away += os.read(r, 1)[0] != home
        os.close(r)
        os.waitpid(pid, 0)
        spin(0.02)
    return away

def all_at_once(nr):
    """Children that compute for a while; how many began on another node."""
    started = [fork(lambda: spin(1)) for _ in range(nr)]
    away = sum(os.read(r, 1)[0] != home for _, r, home in started)
    for pid, _, _ in started: os.waitpid(pid, 0)
    return away

spin(0.3)
print(one_by_one(20), all_at_once(7))
PY
start_baton
for setting in numa-imbalance=corrected numa-imbalance=kernel fork-placement=near; do
    $LAB set numa-imbalance=corrected fork-placement=numa $setting >/dev/null
    read -r single crowd < <(python3 "$WORK/forks.py")
    note "$setting: $single of 20 single children began on the other node, $crowd of 7 at once"
    case $setting in
    # A child and its parent are a pair. Of eight tasks each node has half.
    *corrected) [ "$single" -le 4 ] || fail "single children leave their parent's node"
        [ "$crowd" -ge 3 ] || fail "children at once do not spread" ;;
    # 3 idle CPUs here, 4 there, unless the plan was made while something ran there: a child, too.
    *kernel) [ "$single" -ge 2 ] || fail "single children stay although more CPUs idle elsewhere" ;;
    *near) [ "$single" -le 4 ] || fail "single children leave their parent's node" ;;
    esac
done
note "forks away and in all: $(json tasks.forked_away) $(json tasks.forks)"
still_attached
stop_baton
