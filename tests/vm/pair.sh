# a pair of pipe partners stays on one node with numa-imbalance corrected, and the counters say why
cat >"$WORK/pair.py" <<'END'
import os, sys, time
a, b = os.pipe(), os.pipe()
end = time.time() + float(sys.argv[1])
child = os.fork()
if child == 0:
    while os.read(a[0], 1): os.write(b[1], b"x")
    os._exit(0)
print(child, flush=True)
n = 0
while time.time() < end:
    for _ in range(50):
        os.write(a[1], b"x"); os.read(b[0], 1); n += 1
os.kill(child, 9)
print(n, flush=True)
END
start_baton
node_of() { for n in /sys/devices/system/node/node[0-9]*; do [ ! -e "$n/cpu$1" ] || echo "${n##*node}"; done; }
for value in corrected kernel; do
    $LAB set numa-imbalance=$value >/dev/null
    python3 "$WORK/pair.py" 8 >"$WORK/pair" &
    parent=$!
    wait_for 5 test -s "$WORK/pair" || fail "the pair does not start"
    child=$(head -n 1 "$WORK/pair")
    sleep 1
    apart=0 looks=0
    for _ in $(seq 30); do
        sleep 0.2
        [ -e "/proc/$child" ] || break
        looks=$((looks + 1))
        [ "$(node_of "$(last_cpu $parent)")" = "$(node_of "$(last_cpu "$child")")" ] || apart=$((apart + 1))
    done
    wait $parent || true
    trips=$(tail -n 1 "$WORK/pair")
    note "$value: on two nodes in $apart of $looks looks, $trips round trips; tolerated $(counters skip_numa_tolerated) times"
    if [ $value = corrected ]; then
        [ $apart -le $((looks / 5)) ] || fail "the pair is pulled apart"
        [ "$(counters skip_numa_tolerated)" -gt 0 ] || fail "no pass tolerated the imbalance"
    fi
done
still_attached
stop_baton
