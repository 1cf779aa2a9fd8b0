#!/bin/sh
# nft -f FILE of a rehearsed node, which has no rights on its network: the rules are kept, and the rehearsal's
# metadata service obeys those about itself.
[ "${1:-}" = -f ] && [ -r "${2:-}" ] || { echo "nft: only -f FILE is known on a rehearsed node" >&2; exit 1; }
mkdir -p /run/rehearsal && cp "$2" /run/rehearsal/.nft && mv /run/rehearsal/.nft /run/rehearsal/nft
