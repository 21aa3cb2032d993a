# what cannot work is refused in one sentence and leaves nothing behind
refused() { # refused STATUS PATTERN COMMAND…
    local status=0 want=$1 pattern=$2
    shift 2
    timeout 60 "$@" >"$WORK/out" 2>&1 || status=$?
    [ $status = "$want" ] || { cat "$WORK/out"; fail "\`$*\`: status $status instead of $want"; }
    grep -qE "$pattern" "$WORK/out" || { cat "$WORK/out"; fail "\`$*\` does not say: $pattern"; }
    ! grep -qi 'panicked\|backtrace\|os error' "$WORK/out" || { cat "$WORK/out"; fail "\`$*\`: not a sentence"; }
}
refused 2 "unexpected argument '--no-such-flag'" $BATON --no-such-flag
refused 2 'not in 100..=1000000' $BATON --slice-us 0
refused 1 'lower the first or raise the second' $BATON --slice-us 500 --slice-min-us 1000
refused 1 "privilege" setpriv --reuid=65534 --regid=65534 --clear-groups $BATON
refused 1 "sched_ext" unshare -m bash -c "mount -t tmpfs none $SCX && exec $BATON"
is_state disabled || fail "state is $(state)"

start_baton
refused 1 "scheduler: .*baton" $BATON
still_attached
stop_baton
! pgrep -x scx_baton || fail "a process is left"
