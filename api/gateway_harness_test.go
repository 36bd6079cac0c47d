package api

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/internal/gateway"
	"comet/internal/orchestrator"
	"comet/internal/registry"
	"comet/internal/sandbox"
	"comet/internal/toolindex"
	"comet/internal/upstream"
	"comet/internal/usage"
	"comet/store"
)

// NewTestGateway returns a gateway without upstreams over the rooms of a test. Its sandbox
// has no children before code runs.
func NewTestGateway(t testing.TB, s *store.Store, reg *registry.Registry, ledger *usage.Ledger, work *orchestrator.Orchestrator, feed *events.Feed) *gateway.Gateway {
	t.Helper()
	var g *gateway.Gateway
	up := upstream.New(&upstream.Options{Changed: func(c upstream.Change) { g.UpstreamChanged(c) }})
	box, err := sandbox.New(&sandbox.Options{Warm: -1})
	require.NoError(t, err)
	g = gateway.New(gateway.Core{
		Store: s, Registry: reg, Usage: ledger, Work: work, Feed: feed, Upstreams: up, Index: toolindex.New(s, nil), Sandbox: box,
	}, &gateway.Options{Clock: s.Now})
	for _, service := range []interface {
		Start(context.Context) error
		Stop(context.Context) error
	}{up, box, g} {
		require.NoError(t, service.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, service.Stop(context.WithoutCancel(t.Context()))) })
	}
	return g
}
