#!/usr/bin/env bash
# Fuzzes every fuzz target of the tree for a time each: test/fuzz.sh 5s
#
# At the end of its time go test sometimes reports its own deadline as a
# failure, without a failing input. Only a failing input, or another error, is
# one here.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-5s}
out=$(mktemp)
trap 'rm -f "$out"' EXIT
grep -rlE '^func Fuzz' --include='*_test.go' . | sort | while read -r file; do
	dir=$(dirname "$file")
	grep -oE '^func Fuzz[A-Za-z0-9_]*' "$file" | sed 's/func //' | while read -r name; do
		echo "fuzz $dir $name $time"
		if go test "$dir" -run '^$' -fuzz "^$name\$" -fuzztime "$time" </dev/null >"$out" 2>&1; then
			tail -n 1 "$out"
		elif grep -q 'context deadline exceeded' "$out" && ! grep -qE 'Failing input|panic|_test.go:' "$out"; then
			echo "ok, its time was up: $(grep -E '^fuzz: elapsed' "$out" | tail -n 1)"
		else
			cat "$out"
			exit 1
		fi
	done
done
