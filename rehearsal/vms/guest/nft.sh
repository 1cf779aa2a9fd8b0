#!/bin/sh
# nft of a rehearsed node, which has no rights on its network: the rules and the set of granted users are kept, and
# the rehearsal's metadata service obeys those about itself.
state=/run/rehearsal set=ranklift_identity
mkdir -p "$state"
keep() { cat >"$state/.$1" && mv "$state/.$1" "$state/$1"; }

if [ "${1:-}" = -f ] && [ -r "${2:-}" ]; then
    keep nft <"$2" && rm -f "$state/granted"
    exit
fi
words=$*
if ! grep -q "set granted" "$state/nft" 2>/dev/null; then
    echo "nft: no set granted, or not -f FILE: $words" >&2
    exit 1
fi
case $words in
"add element inet $set granted { "*" }")
    words=${words#*"{ "}
    echo "${words%" }"}" | keep granted
    ;;
"flush set inet $set granted") rm -f "$state/granted" ;;
*)
    echo "nft: not known on a rehearsed node: $words" >&2
    exit 1
    ;;
esac
