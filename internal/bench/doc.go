// Package bench measures comet against hand-written baselines: the REST API against handlers that
// run the same statements on the same file, creates and the ledger against one transaction per
// request, tasks against a bare server, JetStream and River, webhooks against a client without
// storage, and the middleware chain against none. Subject and baselines run in one process in short
// alternating rounds, because only ratios are meaningful on a shared machine.
//
// The package contains only benchmarks: `make bench` runs them, `go test ./...` does not.
// docs/performance.md explains the results.
package bench
