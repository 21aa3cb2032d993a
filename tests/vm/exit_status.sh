# exit status 2 when the kernel ends it, 3 when another scheduler took over
start_baton
echo S >/proc/sysrq-trigger
status=0
wait "$BATON_PID" || status=$?
[ $status = 2 ] || fail "status $status after an ejection"
grep -qi 'ended by the kernel.*sysrq' "$LOG" || fail "the reason is not told"
is_state disabled || fail "state is $(state)"

start_baton
first=$BATON_PID first_log=$LOG
kill -STOP "$first"
echo S >/proc/sysrq-trigger
wait_for 10 is_state disabled || fail "state is $(state)"
LOG=$WORK/second.log
start_baton
kill -CONT "$first"
status=0
wait "$first" || status=$?
[ $status = 3 ] || { cat "$first_log"; fail "status $status after another one took over"; }
still_attached
stop_baton
