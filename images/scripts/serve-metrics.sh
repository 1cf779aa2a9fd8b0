#!/bin/sh
# Serves a node's metrics by the newest node code that a push has brought: before the first, no job can run.
set -eu
cd "$HOME"
while :; do
    for newest in $(ls -t .ranklift/remote 2>/dev/null); do
        exec python3 -I -S ".ranklift/remote/$newest/__main__.py" serve-metrics "$@"
    done
    sleep 5
done
