# the agent keeps to its share of the CPUs' time under hackbench; without one nothing is put off
# run_with SHARE: sets rounds, put_off and pct, the agent's share of one CPU, over some hackbench.
run_with() {
    start_baton --agent-share "$1"
    local used=$(json agent.cpu_ns) began=$(json uptime_ns)
    for _ in 1 2; do hackbench -p -g 4 -l 250 >/dev/null; done
    used=$(($(json agent.cpu_ns) - used)) began=$(($(json uptime_ns) - began))
    pct=$(awk -v u=$used -v t=$began 'BEGIN { printf "%.1f", 100 * u / t }')
    rounds=$($LAB status --json | python3 -c 'import json, sys; print(sum(w["rounds"] for w in json.load(sys.stdin)["workers"]))')
    put_off=$($LAB status --json | python3 -c 'import json, sys; print(sum(w["put_off"] for w in json.load(sys.stdin)["workers"]))')
    note "--agent-share $1: $pct % of one CPU, $rounds rounds, $put_off put off"
    still_attached
    stop_baton
}
run_with 0
[ "$put_off" = 0 ] || fail "put off without a limit"
without=$rounds
run_with 4
# 3.2 % of one of 8 CPUs, and what the end of an idle period and these questions cost.
awk -v p="$pct" 'BEGIN { exit !(p < 6) }' || fail "far more than its share"
run_with 1
[ "$put_off" -gt 0 ] || fail "nothing was put off"
[ "$rounds" -lt "$without" ] || fail "as many rounds as without a limit"
