// Package bench measures what the house costs over the ground it stands on: the
// REST door against hand-written handlers that run the same statements on the
// same file, the group writer and the ledger against one transaction a request, the
// webhooks against a client that keeps no books, and the chain of middlewares
// against none. All of it happens in one run, in short alternating rounds, because
// only the ratios mean anything on a machine one does not own.
//
// It holds nothing but benchmarks: `make bench` runs them, `go test ./...` does
// not. docs/performance.md says how to read them.
package bench
