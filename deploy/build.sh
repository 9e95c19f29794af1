#!/bin/sh
# Builds the image's programs without a container engine, by the go build line
# of deploy/Dockerfile, into OUT/linux/amd64 and OUT/linux/arm64:
#   deploy/build.sh OUT [PLATFORM [PACKAGE]]
# The first build for a platform compiles the client of Kubernetes, which takes
# minutes. TestPrograms in test/deploy says whether they are static.
set -eu
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
line=$(sed -n 's|^RUN \(.*go build .*\) -o /out/ \./cmd/\.\.\. && .*|\1|p' deploy/Dockerfile)
if [ -z "$line" ] || [ "$(grep -c 'go build' deploy/Dockerfile)" != 1 ]; then
	echo "deploy/Dockerfile: not the one go build line that is known here" >&2
	exit 1
fi
VERSION=${VERSION:-$(sed -n 's/^ARG .*VERSION=//p' deploy/Dockerfile)}
for platform in ${2:-linux/amd64 linux/arm64}; do
	TARGETOS=${platform%/*} TARGETARCH=${platform#*/}
	eval "$line" '-o "$out/$platform/" "${3:-./cmd/...}"'
done
