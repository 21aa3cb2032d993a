# the plan pulls without the agent; each newidle value shows in its counters
start_baton
hackbench -p -g 4 -l 100 >/dev/null
[ "$(json tasks.pulled)" -gt 0 ] || fail "plan: nothing was pulled"
before=$(json tasks.pulled)
hackbench -p -g 4 -l 600 >/dev/null & hb=$!
sleep 1
kill -STOP "$BATON_PID"
sleep 3
kill -CONT "$BATON_PID"
after=$(json tasks.pulled)
note "plan: $((after - before)) pulls around 3 s without the agent"
wait $hb
$LAB set newidle=off >/dev/null
sleep 1
before=$(json tasks.pulled)
hackbench -p -g 4 -l 100 >/dev/null
off=$(($(json tasks.pulled) - before))
$LAB set newidle=agent >/dev/null
hackbench -p -g 4 -l 100 >/dev/null
answers=$($LAB status --json | python3 -c 'import json, sys; print(sum(w["newidle_answers"] for w in json.load(sys.stdin)["workers"]))')
p99=$($LAB status --json | python3 -c 'import json, sys; print(max(w["newidle_p99_ns"] or 0 for w in json.load(sys.stdin)["workers"]) // 1000)')
note "off: $off pulls; agent: $answers answers, p99 at most $p99 us"
[ "$off" = 0 ] || fail "off: $off pulls by plan"
[ "$answers" -gt 0 ] || fail "agent: no CPU was answered"
still_attached
stop_baton
