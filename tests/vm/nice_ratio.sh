# nice 0 and nice 5 on one CPU share it as 1,024 : 335 within 10 %
start_baton
hog 3 0; heavy=$!
hog 3 5; light=$!
sleep 2
h0=$(cpu_ticks $heavy) l0=$(cpu_ticks $light)
sleep 12
h=$(($(cpu_ticks $heavy) - h0)) l=$(($(cpu_ticks $light) - l0))
note "shares $h : $l ticks; wanted 1024 : 335"
awk -v h=$h -v l=$l 'BEGIN { r = (l / h) / (335 / 1024); exit !(r > 0.9 && r < 1.1) }' ||
    fail "the ratio is off by more than 10 %"
still_attached
stop_baton
