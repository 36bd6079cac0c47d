package api

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/events"
	"comet/internal/orchestrator"
	"comet/internal/registry"
	"comet/internal/sandbox"
	"comet/internal/tools"
	"comet/internal/tools/builtin"
	"comet/internal/toolsearch"
	"comet/internal/upstream"
	"comet/internal/usage"
	"comet/internal/workflow"
	"comet/store"
)

// NewTestTools returns tools without upstreams, and workflows of them, over the packages of a test. Their sandbox has no
// children before code runs.
func NewTestTools(t testing.TB, s *store.Store, reg *registry.Registry, ledger *usage.Ledger, work *orchestrator.Orchestrator, feed *events.Feed) (*tools.Service, *workflow.Engine, *toolsearch.Index) {
	t.Helper()
	var hub *tools.Service
	up := upstream.New(&upstream.Options{OnChange: func(c upstream.Change) { hub.OnUpstreamChange(c) }})
	box, err := sandbox.New(&sandbox.Options{Warm: -1})
	require.NoError(t, err)
	index := toolsearch.New(s, nil)
	hub = tools.New(tools.Dependencies{
		Store: s, Registry: reg, Usage: ledger, Orchestrator: work, Feed: feed, Upstreams: up, Index: index,
	}, &tools.Options{Clock: s.Now})
	tokens := auth.New(s, nil)
	workflows := workflow.New(workflow.Dependencies{Store: s, Ledger: ledger, Auth: tokens, Tools: hub, Orchestrator: work, Feed: feed, Index: index}, nil)
	builtin.Register(builtin.Dependencies{Tools: hub, Orchestrator: work, Auth: tokens, Index: index, Sandbox: box, Workflows: workflows, Clock: s.Now})
	for _, service := range []interface {
		Start(context.Context) error
		Stop(context.Context) error
	}{up, box, hub, workflows} {
		require.NoError(t, service.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, service.Stop(context.WithoutCancel(t.Context()))) })
	}
	return hub, workflows, index
}
