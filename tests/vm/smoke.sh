# loads, runs hackbench and stops (for each kernel on offer)
start_baton
timeout 120 hackbench -p -g 4 -l 100 >"$WORK/hb" || fail "hackbench"
still_attached
stop_baton
note "kernel $(uname -r), hackbench $(sed -n 's/Time: //p' "$WORK/hb") s"
