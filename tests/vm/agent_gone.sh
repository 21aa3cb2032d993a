# a stopped agent costs no task its CPU; a killed one hands the machine back within 5 s
start_baton
kill -STOP "$BATON_PID"
end=$((SECONDS + 20)) runs=0
while [ $SECONDS -lt $end ]; do
    timeout 60 hackbench -p -g 2 -l 50 >/dev/null || fail "hackbench while the agent is stopped"
    runs=$((runs + 1))
    is_state enabled || fail "ejected while the agent is stopped"
done
note "$runs runs of hackbench while the agent was stopped"
kill -CONT "$BATON_PID"
sleep 1
still_attached

hackbench -p -g 4 -l 300 >"$WORK/hb" &
hb=$!
sleep 1
kill -KILL "$BATON_PID"
wait "$BATON_PID" 2>/dev/null || true
wait_for 5 is_state disabled || fail "state is $(state) 5 s after SIGKILL"
wait $hb || fail "hackbench did not survive the change of scheduler"
