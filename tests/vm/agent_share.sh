# the agent keeps to its share of the CPUs' time under hackbench; without one nothing is put off
# run_with SHARE: sets rounds, put_off and pct, the agent's share of one CPU, over some hackbench.
run_with() {
    start_baton --agent-share "$1"
    local used=$(json agent.cpu_ns) began=$(json uptime_ns)
    for _ in 1 2; do hackbench -p -g 4 -l 250 >/dev/null; done
    used=$(($(json agent.cpu_ns) - used)) began=$(($(json uptime_ns) - began))
    pct=$(awk -v u=$used -v t=$began 'BEGIN { printf "%.1f", 100 * u / t }')
    read -r rate put_off < <($LAB status --json | python3 -c '
import json, sys
s = json.load(sys.stdin)
total = lambda name: sum(w[name] for w in s["workers"])
print("%.1f" % (total("rounds") * 1e9 / s["uptime_ns"]), total("put_off"))')
    note "--agent-share $1: $pct % of one CPU, $rate rounds a second, $put_off put off"
    still_attached
    stop_baton
}
run_with 0
[ "$put_off" = 0 ] || fail "put off without a limit"
without=$rate
run_with 4
# The share is 3.2 % of one of 8 CPUs. Beside it stand what idle CPUs ask for, which is never put off, these
# questions, and the time that the host takes from a virtual CPU: half as much again in some runs.
awk -v p="$pct" 'BEGIN { exit !(p < 10) }' || fail "far more than its share"
[ "$put_off" -gt 0 ] || fail "nothing was put off"
awk -v r="$rate" -v w="$without" 'BEGIN { exit !(r < 0.7 * w) }' || fail "about as many rounds as without a limit"
