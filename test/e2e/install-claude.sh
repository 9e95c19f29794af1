#!/usr/bin/env bash
# Installs the Claude Code CLI that the end-to-end tests run, by npm, into
# .cache/claude. Run again it does nothing.
set -euo pipefail
version=2.1.197

cd "$(dirname "$0")/../.."
claude=.cache/claude/node_modules/.bin/claude

# The package's name is a launcher until its post-install script has put the
# native program in its place; npm may have been told not to run such scripts.
native() { "$claude" --version 2>/dev/null | grep -qF "$version"; }

if native; then
	echo "claude $version is installed already: $claude"
	exit 0
fi
if ! command -v npm >/dev/null; then
	echo "npm is needed to install claude $version; install Node.js 20 or newer" >&2
	exit 1
fi
mkdir -p .cache/claude
npm install --prefix .cache/claude --no-save --no-audit --no-fund --loglevel=error "@anthropic-ai/claude-code@$version" >&2
if ! native; then
	(cd .cache/claude/node_modules/@anthropic-ai/claude-code && node install.cjs) >&2
fi
if ! native; then
	echo "claude $version was installed but does not start: $claude" >&2
	exit 1
fi
echo "installed claude $version: $claude"
