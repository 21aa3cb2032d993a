# storms of computing, forks, affinity flips and execs, 30 s each, eject nothing
need stress-ng
start_baton
for kind in "--cpu 8" "--fork 8" "--affinity 8" "--exec 4"; do
    # shellcheck disable=SC2086  # options
    timeout 120 stress-ng $kind --timeout "${STRESS_SECONDS:-30}s" --quiet || fail "stress-ng $kind"
    still_attached
done
stop_baton
