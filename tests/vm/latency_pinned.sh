# a task pinned to a hog's CPU runs within 100 ms of waking
need cyclictest
start_baton
hog 2
timeout 60 cyclictest --policy=other -a 2 -t 1 -i 20000 -l 200 -q >"$WORK/cyclic" || fail "cyclictest"
still_attached
max=$(sed -n 's/.*Max: *\([0-9]*\).*/\1/p' "$WORK/cyclic")
note "longest wait of 200: $max us"
[ "$max" -lt 100000 ] || fail "a wake-up took $max us"
stop_baton
