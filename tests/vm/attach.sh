# attaches, runs hackbench in all four forms, detaches and leaves the kernel's scheduler; three times
for round in 1 2 3; do
    start_baton
    is_state enabled || fail "state is $(state)"
    grep -q '^baton' $SCX/root/ops || fail "the scheduler in charge is $(cat $SCX/root/ops)"
    for form in "-p" "" "-p -T" "-T"; do
        # shellcheck disable=SC2086  # options
        timeout 120 hackbench $form -g 2 -l 50 >/dev/null || fail "round $round: hackbench $form"
        still_attached
    done
    stop_baton
done
timeout 60 hackbench -p -g 2 -l 50 >/dev/null || fail "hackbench after the last stop"
