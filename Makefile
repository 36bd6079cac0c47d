# make without a goal lists all goals.
.DEFAULT_GOAL := help
SHELL := /bin/bash

GOLANGCI_VERSION := v2.15.0
GOLANGCI_DIR := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/comet-tools/golangci-lint-$(GOLANGCI_VERSION)-$(shell go env GOVERSION)
GOLANGCI := $(GOLANGCI_DIR)/golangci-lint

# Empty without a release tag; `comet version` then prints only the commit.
VERSION ?= $(shell git describe --tags --dirty 2>/dev/null)
IMAGE_ARGS = --build-arg VERSION=$(VERSION) --build-arg REVISION=$(shell git rev-parse HEAD) --build-arg SOURCE=$(shell git remote get-url origin 2>/dev/null | sed 's|//[^/]*@|//|')
FUZZ_TIME ?= 1m
ROUNDS ?= 15
BENCH ?= .

.PHONY: help
help: ## List the goals
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the static binary into bin/comet
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o bin/comet ./cmd/comet

.PHONY: run
run: ## Run the server from source; ARGS="--listen 127.0.0.1:9090" passes flags
	go run ./cmd/comet serve $(ARGS)

.PHONY: test
test: ## Run the tests, with COMET_TEST_POSTGRES_URL also on PostgreSQL
	go test ./...

.PHONY: race
race: ## Run the tests on both databases under the race detector
	COMET_TEST_POSTGRES_URL=$${COMET_TEST_POSTGRES_URL:-$$(.ci/postgres start)} go test -race ./...

.PHONY: ledger
ledger: ## Make 640,000 reservations by 64 clients on each database; takes long
	COMET_TEST_LEDGER_RESERVATIONS=640000 go test -run TestConcurrentCallers/NeverOverspend -timeout 180m -v ./internal/usage

.PHONY: lint
lint: $(GOLANGCI) ## Check the imports between packages, and all other rules of golangci-lint
	$(GOLANGCI) run --allow-serial-runners
	cd tools && $(GOLANGCI) run --allow-serial-runners --config ../.golangci.yml

$(GOLANGCI):
	GOBIN=$(GOLANGCI_DIR) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

.PHONY: bench
bench: ## Measure comet against its baselines; ROUNDS (15) and BENCH select, see docs/performance.md
	@set -o pipefail; COMET_BENCH_HISTORY=$(HISTORY) COMET_BENCH_BEFORE=$(abspath $(BEFORE)) \
		go test -run '^$$' -bench '$(BENCH)' -benchtime $(ROUNDS)x -timeout 180m ./internal/bench | \
		awk '{ print; fflush() } /Benchmark/ { ran = 1 } /^ok/ { ok = 1 } END { if (ok && !ran) { print "no benchmark matches $(BENCH)"; exit 1 } }'

.PHONY: eval
eval: ## Print the quality of tool search on its evaluation set: hit@1, hit@5, MRR
	@set -o pipefail; go test -count=1 -v -run '^TestSearchQuality$$' ./internal/toolsearch | sed -n 's/^ *eval_test.go:[0-9]*: //p'

.PHONY: generate
generate: ## Generate the API description and the Go client from the annotations
	tools/generate

.PHONY: api-lint
api-lint: ## Lint the API description and compile a TypeScript client of it (needs Node.js)
	tools/lint/run

.PHONY: webhooks-verify
webhooks-verify: ## Verify deliveries with the library of Standard Webhooks (needs Node.js)
	tools/webhooks-verify/run

.PHONY: mcp-verify
mcp-verify: ## Test the MCP server with published clients (needs Node.js)
	tools/mcp-verify/run

.PHONY: genesis-verify
genesis-verify: ## Compare signatures of Genesis messages with those of the document's own code (needs Node.js)
	tools/genesis-verify/run

.PHONY: a2a-tck
a2a-tck: ## Test the A2A server with the compatibility kit of the Linux Foundation; TCK=folder (needs Python)
	tools/a2a-tck/run '$(TCK)'

.PHONY: examples-verify
examples-verify: ## Run the agents of examples/v5 and examples/genesis (needs Node.js and Python with cryptography)
	tools/examples-verify/run

.PHONY: fuzz
fuzz: ## Run every fuzz test for FUZZ_TIME (1m); FUZZ_CORPUS keeps inputs and the number of executions
	@FUZZ_TIME='$(FUZZ_TIME)' FUZZ_CORPUS='$(FUZZ_CORPUS)' tools/fuzz '$(FUZZ)'

.PHONY: postgres
postgres: ## Start a temporary PostgreSQL for tests on port 55432 and print its URL
	@COMET_TEST_PG_PORT=$${COMET_TEST_PG_PORT:-55432} .ci/postgres start

.PHONY: postgres-stop
postgres-stop: ## Stop it and delete its data
	@.ci/postgres stop

.PHONY: ci
ci: ## Run all checks of CI
	.ci/run

.PHONY: docker
docker: ## Build the container image comet:latest
	docker build $(IMAGE_ARGS) --tag comet:latest .

.PHONY: docker-full
docker-full: ## Build the container image comet:full, with Node.js and uv for MCP servers
	docker build $(IMAGE_ARGS) --target full --tag comet:full .

.PHONY: release
release: ## Make archives, Debian packages, SBOMs and checksums in dist; PLATFORMS="linux/amd64" selects
	VERSION=$(VERSION) tools/release/run $(PLATFORMS)

.PHONY: release-verify
release-verify: ## Make a release for linux/amd64 and check what is in it (needs Node.js)
	tools/release/verify

.PHONY: kube-verify
kube-verify: ## Validate the manifests in deploy/kubernetes (needs Node.js)
	tools/kube-verify/run

.PHONY: clean
clean: ## Delete build results; data directories stay
	rm -rf bin dist tools/lint/node_modules
