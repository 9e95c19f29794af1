#!/usr/bin/env bash
# The newcomer's test: a clean clone, an empty HOME, only Go and the network.
# Both commands of the README are run as they stand there, and timed.
# TALLYMAN_NEWCOMER_COLD=1 starts from empty module and build caches too.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
git clone --quiet . "$work/tallyman"
mkdir "$work/home"

# CGO_ENABLED=0 is what Go chooses where there is no C compiler.
env=(env -i "HOME=$work/home" "PATH=$PATH" "LANG=C.UTF-8" "GOFLAGS=${GOFLAGS:-}" "CGO_ENABLED=0")
if [ -z "${TALLYMAN_NEWCOMER_COLD:-}" ]; then
	env+=("GOMODCACHE=$(go env GOMODCACHE)" "GOCACHE=$(go env GOCACHE)")
fi
limit=180 # seconds for the first command, cold build included
for name in GOPROXY GOSUMDB GOTOOLCHAIN; do
	env+=("$name=$(go env "$name")")
done

cd "$work/tallyman"
grep -qF 'go run ./cmd/tallyman run demo "say hello"' README.md || { echo "the README does not name its first command"; exit 1; }
grep -qF 'make test' README.md || { echo "the README does not name its second command"; exit 1; }

start=$SECONDS
out=$("${env[@]}" go run ./cmd/tallyman run demo "say hello" 2>&1) || { echo "$out"; echo "the first command failed"; exit 1; }
first=$((SECONDS - start))
echo "$out" | tail -n 12
grep -q 'succeeded (Completed)' <<<"$out" || { echo "the first command did not say how it ended"; exit 1; }
grep -q 'say hello' <<<"$out" || { echo "the answer does not repeat the prompt"; exit 1; }
[ "$first" -le "$limit" ] || { echo "the first command took ${first}s, more than ${limit}s"; exit 1; }

start=$SECONDS
"${env[@]}" make test || { echo "the second command failed"; exit 1; }
echo "newcomer: first command ${first}s, make test $((SECONDS - start))s"
