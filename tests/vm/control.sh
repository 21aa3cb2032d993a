# settings are changed and shown on the running scheduler, by root only, all or none
! $LAB get >"$WORK/out" 2>&1 || fail "get without a scheduler succeeds"
grep -q 'no scx_baton is running' "$WORK/out" || fail "get without a scheduler: $(cat "$WORK/out")"
start_baton --serialize-order due
$LAB get serialize-order | grep -q '^serialize-order *due ' || fail "the command line's value is not in force"
$LAB set serialize-order=always numa-imbalance=kernel
$LAB get | grep -E '^(serialize-order *always|numa-imbalance *kernel) .*changed' | wc -l | grep -qx 2 ||
    fail "set does not show"
for bad in no-such=1 serialize-order=sometimes serialize-order; do
    ! $LAB set numa-imbalance=corrected "$bad" >"$WORK/out" 2>&1 || fail "\`$bad\` is accepted"
    [ "$(wc -l <"$WORK/out")" = 1 ] || fail "\`$bad\`: not one sentence: $(cat "$WORK/out")"
done
$LAB get numa-imbalance | grep -q ' kernel ' || fail "a refused change was half applied"
! setpriv --reuid=65534 --regid=65534 --clear-groups $LAB get >"$WORK/out" 2>&1 || fail "not root, yet answered"
grep -qE 'only root|no scx_baton' "$WORK/out" || fail "not root: $(cat "$WORK/out")"

# Two writers: the settings are always one's or the other's, never a mix.
writer() { for _ in $(seq 20); do $LAB set "serialize-order=$1" "numa-imbalance=$2" >/dev/null; done; }
writer always kernel & w1=$!
writer elected corrected & w2=$!
while kill -0 $w1 2>/dev/null || kill -0 $w2 2>/dev/null; do
    pair=$($LAB get serialize-order numa-imbalance | awk '{ printf "%s ", $2 }')
    [ "$pair" = "always kernel " ] || [ "$pair" = "elected corrected " ] || fail "a mix: $pair"
done

hackbench -p -g 2 -l 50 >/dev/null
$LAB status >"$WORK/out" && grep -q 'allocations after start' "$WORK/out" || fail "status"
$LAB why >"$WORK/out" && grep -q 'pass for CPU' "$WORK/out" || fail "why explains nothing"
$LAB why --json | head -n 1 | python3 -c 'import json, sys; json.loads(sys.stdin.readline())["level"]' || fail "why --json"
$LAB status --pid $$ | grep -q 'sched_ext, by baton' || fail "status --pid: $($LAB status --pid $$)"
timeout 5 $BATON --monitor 1 >"$WORK/out" || true
grep -q 'agent .*%' "$WORK/out" || fail "--monitor prints nothing"
$BATON --help-stats >"$WORK/out" && grep -q moves_undone "$WORK/out" || fail "--help-stats"
still_attached
stop_baton
[ ! -e /run/scx_baton/control ] || fail "the socket is left behind"
[ "$(counter "minor and")" = 0 ] && grep -q ' and 0 major page faults, allocations 0' "$LOG" ||
    fail "page faults or allocations: $(grep 'page faults' "$LOG")"
