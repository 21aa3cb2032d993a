# For the tests in this folder (sourced before each of them).
set -euo pipefail

BATON=/run/baton-test/scx_baton
LAB=/run/baton-test/baton
SCX=/sys/kernel/sched_ext
WORK=$(mktemp -d)
LOG=$WORK/baton.log
BATON_PID=
trap 'jobs -p | xargs -r kill -9 2>/dev/null; rm -rf "$WORK"' EXIT

fail() { echo "FAILED: $*"; [ ! -e "$LOG" ] || tail -n 40 "$LOG"; dmesg | grep -i sched_ext | tail -n 5; exit 1; }
skip() { echo "note: skipped: $*"; exit 77; }
# What a reader of the results should see even when the test passes.
note() { echo "note: $*"; }

state() { cat $SCX/state; }

# wait_for SECONDS COMMAND…: until the command succeeds.
wait_for() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.1
    done
}
is_state() { [ "$(state)" = "$1" ]; }

# start_baton [OPTIONS…]: starts it and returns when it schedules.
start_baton() {
    $BATON "$@" >"$LOG" 2>&1 &
    BATON_PID=$!
    wait_for 30 is_scheduling || fail "it does not start"
}
is_scheduling() { grep -q 'scheduling [0-9]* CPUs' "$LOG"; }

# stop_baton [STATUS]: asks it to stop and checks how it does.
stop_baton() {
    local status=0
    kill -INT "$BATON_PID"
    wait "$BATON_PID" || status=$?
    [ $status = "${1:-0}" ] || fail "exit status $status instead of ${1:-0}"
    is_state disabled || fail "state is $(state) after it stopped"
}

still_attached() {
    is_state enabled || fail "ejected: state is $(state)"
    kill -0 "$BATON_PID" || fail "the agent is gone"
}

# counter WORD: the number before WORD in the closing report.
counter() { sed -n "s/.*[ :(]\([0-9.]*\) $1.*/\1/p" "$LOG" | tail -n 1; }
outcome() { sed -n "s/.*requests:.* $1 \([0-9]*\).*/\1/p" "$LOG" | tail -n 1; }

need() { command -v "$1" >/dev/null || skip "$1 is not installed"; }

# cpu_ticks PID: user and system time used, in clock ticks.
# By the shell itself: on a machine full of hogs a process more takes its time.
cpu_ticks() { stat_fields "$1" && echo $((FIELDS[11] + FIELDS[12])); }
# stat_fields PID: what follows the name in /proc/PID/stat, in FIELDS.
stat_fields() {
    local line
    read -r line <"/proc/$1/stat" && read -ra FIELDS <<<"${line##*) }"
}

hog() { # hog CPULIST [NICE]: starts a task that never sleeps; its pid is in $!
    taskset -c "$1" nice -n "${2:-0}" bash -c 'while :; do :; done' &
}

# json PATH: one number out of `baton status --json`, by a path such as requests.issued.
json() {
    $LAB status --json | python3 -c '
import json, sys
v = json.load(sys.stdin)
for key in sys.argv[1].split("."):
    v = v[int(key)] if key.isdigit() else v[key]
print(v)' "$1"
}
# counters NAME [IDLE-TYPE…]: sum of a counter over all levels, of the present configuration.
counters() {
    $LAB status --json | python3 -c '
import json, sys
name, kinds = sys.argv[1], sys.argv[2:] or ["busy", "idle", "newidle"]
levels = json.load(sys.stdin)["counters"]["levels"]
print(sum(level[kind].get(name, 0) for level in levels for kind in kinds))' "$@"
}
# last_cpu PID: where it ran last.
last_cpu() { stat_fields "$1" && echo "${FIELDS[36]}"; }
# node_cpus N: the CPU list of a node.
node_cpus() { cat "/sys/devices/system/node/node$1/cpulist"; }
# released PID…: lifts the affinity of tasks.
released() { for p in "$@"; do taskset -acp "$(cat /sys/devices/system/cpu/online)" "$p" >/dev/null; done; }
stop_hogs() { kill "$@" 2>/dev/null || true; wait "$@" 2>/dev/null || true; }
