# tasks bound to one CPU do not keep the others of their queue from moving away
start_baton
bound=() free=()
for _ in 1 2 3; do hog 0; bound+=($!); done
for _ in 1 2 3; do hog 0; free+=($!); done
sleep 1
released "${free[@]}"
sleep 2
away=0
for p in "${free[@]}"; do [ "$(last_cpu "$p")" = 0 ] || away=$((away + 1)); done
note "$away of 3 free hogs left CPU 0, where 3 are bound"
[ $away = 3 ] || fail "they stay behind the bound ones"
for p in "${bound[@]}"; do [ "$(last_cpu "$p")" = 0 ] || fail "a bound task ran on CPU $(last_cpu "$p")"; done
still_attached
stop_hogs "${bound[@]}" "${free[@]}"
stop_baton
