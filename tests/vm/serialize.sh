# each order of the serialize gate counts what its documentation says; attempts fall by 20 and more
start_baton --workers cpu
pids=()
for _ in $(seq $(($(nproc) * 3 / 4))); do hog 0-$(($(nproc) - 1)); pids+=($!); done
sleep 1
declare -A attempts
for order in always due elected; do
    $LAB set serialize-order=$order newidle=off >/dev/null
    sleep 6
    attempts[$order]=$(counters serialize_attempts busy idle)
    not_due=$(counters serialize_not_due busy idle) not_elected=$(counters serialize_not_elected busy idle)
    note "$order: ${attempts[$order]} attempts, $not_due with nothing due, $not_elected for another CPU to make"
    case $order in
    always) [ "$not_due" -gt 0 ] || fail "always: no attempt with nothing due" ;;
    due) [ "$not_due" = 0 ] || fail "due: $not_due attempts with nothing due" ;;
    elected) [ "$not_due" = 0 ] && [ "$not_elected" = 0 ] || fail "elected: taken before election" ;;
    esac
done
[ "${attempts[always]}" -ge $((attempts[elected] * 20)) ] ||
    fail "always ${attempts[always]} is not 20 times elected ${attempts[elected]}"
still_attached
stop_hogs "${pids[@]}"
stop_baton
