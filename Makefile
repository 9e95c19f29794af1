# `make help` lists the targets. Everything is installed below .cache where it
# is not a Go module.

GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo 0.1.0-dev)
LDFLAGS  := -s -w -X github.com/tallyman-dev/tallyman.Version=$(VERSION)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
CRD      := ./api/crd sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0
SEEDS    ?= 30

.PHONY: help build test lint generate verify e2e deploy kube kube-bench bench soak clean

help: ## show this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## static programs in bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

test: ## unit tests and contract tests of this machine; needs nothing but Go
	$(GO) test ./...

lint: ## gofmt, go vet (all tags), staticcheck
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "not gofmt-ed:"; echo "$$out"; exit 1; fi
	$(GO) vet ./...
	GOOS=darwin $(GO) vet ./cmd/...
	$(GO) vet -tags 'e2e browser faults kube deploy' ./...
	$(GO) run $(STATICCHECK) ./...

generate: ## write what is generated: docs/openapi.json, docs/cli.md, docs/cli-server.md, deploy
	$(GO) test ./internal/cli -run 'TestGenerated' -update
	$(GO) run $(CRD) deploy/crds/tallyman.dev_agents.yaml
	$(GO) test -tags deploy ./test/deploy -update

verify: ## race detector (needs a C compiler), generated files, go.mod, short fuzzing
	@command -v $${CC:-cc} >/dev/null || { echo "make verify: the race detector needs a C compiler (gcc or clang), and none is found"; exit 1; }
	$(GO) mod verify
	$(GO) mod tidy -diff
	$(GO) test ./internal/cli -run 'TestGenerated'
	$(GO) run $(CRD) -check deploy/crds/tallyman.dev_agents.yaml
	CGO_ENABLED=1 $(GO) test -race -short ./...
	./test/fuzz.sh 5s

e2e: build ## real Claude Code CLI, real Chromium, crash loop of SEEDS seeds, newcomer's test
	./test/e2e/install.sh
	$(GO) test -count=1 -tags 'e2e' -timeout 20m ./test/e2e/...
	$(GO) test -count=1 -tags 'browser' -timeout 10m ./internal/web/...
	$(GO) test -count=1 -tags 'faults' -timeout 30m ./test/crash/... -seeds $(SEEDS)
	./test/newcomer.sh

deploy: ## the Helm chart and the manifests, by the real helm
	$(GO) test -count=1 -tags 'deploy' ./test/deploy/...

kube: ## tallyman-server in a real one-node cluster; as root; the first time it builds that, some 20 minutes
	./test/cluster/build.sh
	$(GO) test -count=1 -tags 'kube' -timeout 30m -parallel 6 ./test/kube/...

kube-bench: ## figures of Kubernetes: beside a bare client, and with many objects; as root
	./test/cluster/build.sh
	$(GO) test -count=1 -tags 'kube' -timeout 60m -v ./test/kube -run TestFigures -figures
	$(GO) test -count=1 -tags 'kube' -timeout 30m -v ./test/scale

bench: build ## every benchmark, product and peer in one run
	$(GO) run ./test/bench

soak: build ## the long versions: 500 crash seeds, ten minutes of fuzzing each
	$(GO) test -count=1 -tags 'faults' -timeout 6h ./test/crash/... -seeds 500
	./test/fuzz.sh 10m

clean: ## remove what was built
	rm -rf bin .cache
