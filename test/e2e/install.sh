#!/usr/bin/env bash
# Installs what the end-to-end tests need: the Claude Code CLI (npm) and
# Chromium (Debian's package). Run again it does nothing.
set -euo pipefail
cd "$(dirname "$0")"
./install-claude.sh
for browser in chromium chromium-browser google-chrome; do
	if command -v "$browser" >/dev/null; then
		echo "browser: $(command -v "$browser")"
		exit 0
	fi
done
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "Chromium is needed for the browser tests: install your system's package" >&2
	exit 1
fi
apt-get update -qq </dev/null
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core </dev/null >/dev/null
echo "installed $(chromium --version)"
