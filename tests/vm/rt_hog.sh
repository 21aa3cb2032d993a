# a task whose CPU is taken by a real-time hog goes on elsewhere, although no tick tells of it
start_baton
hog "0-$(($(nproc) - 1))"; pid=$!
sleep 1
cpu=$(last_cpu $pid)
# Bound, so that it can only preempt; on a machine that is idle otherwise.
taskset -c "$cpu" chrt -f 50 bash -c 'while :; do :; done' & rt=$!
sleep 1
before=$(cpu_ticks $pid)
sleep 2
ticks=$(($(cpu_ticks $pid) - before))
note "$ticks of 200 clock ticks in 2 s, on CPU $(last_cpu $pid) after CPU $cpu was taken"
[ $ticks -ge 120 ] || fail "it got $ticks of 200 clock ticks in 2 s"
still_attached
stop_hogs $pid $rt
stop_baton
