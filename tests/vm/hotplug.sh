# a CPU that goes and comes back makes it start again by itself, once for each burst
start_baton
restarts() { grep -c 'starting again' "$LOG" || true; }
for online in 0 1 0 1; do echo $online >/sys/devices/system/cpu/cpu7/online; done
wait_for 20 test "$(restarts)" -ge 0
sleep 6
still_attached
timeout 60 hackbench -p -g 2 -l 50 >/dev/null || fail "hackbench after hotplug"
n=$(restarts)
note "$n restarts for a burst of 4 changes"
[ "$n" -ge 1 ] && [ "$n" -le 2 ] || fail "$n restarts"
still_attached
stop_baton
