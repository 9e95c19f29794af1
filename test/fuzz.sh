#!/usr/bin/env bash
# Fuzzes every fuzz target of the tree for a time each: test/fuzz.sh 5s
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-5s}
grep -rlE '^func Fuzz' --include='*_test.go' . | sort | while read -r file; do
	dir=$(dirname "$file")
	grep -oE '^func Fuzz[A-Za-z0-9_]*' "$file" | sed 's/func //' | while read -r name; do
		echo "fuzz $dir $name $time"
		go test "$dir" -run '^$' -fuzz "^$name\$" -fuzztime "$time" </dev/null
	done
done
