package api

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/models"
)

// TestWhoHearsWhatOfTheGateway: the names of servers and tools are not for everybody, so who
// is no admin hears of the calls of its own agent only.
func TestWhoHearsWhatOfTheGateway(t *testing.T) {
	t.Parallel()
	agent := "ada"
	called := func(by string) models.Event {
		return models.Event{Type: models.EventToolCalled, Key: "fs:read", Data: []byte(`{"agent_id":"` + by + `"}`)}
	}
	edge := models.Event{Type: models.EventEdgeCreated, Key: "tools", Data: []byte(`{"from":"fs:secret","to":"fs:read"}`)}
	down := models.Event{Type: models.EventUpstreamDown, Key: "fs", Data: []byte(`{"id":"fs"}`)}
	for name, c := range map[string]struct {
		by                      models.Principal
		own, others, edge, down bool
	}{
		"an admin":            {models.Principal{Scopes: []models.Scope{models.ScopeAdmin}}, true, true, true, true},
		"an agent":            {models.Principal{Scopes: []models.Scope{models.ScopeToolsCall}, AgentID: &agent}, true, false, false, false},
		"a token of no agent": {models.Principal{Scopes: []models.Scope{models.ScopeToolsCall}}, false, false, false, false},
	} {
		f := readWatchFilter(newQuery(httptest.NewRequest("GET", "/events/stream", nil), "types"), c.by)
		require.Equal(t, []bool{c.own, c.others, c.edge, c.down}, []bool{f.wants(called(agent)), f.wants(called("bob")), f.wants(edge), f.wants(down)}, name)
	}
}

// TestNamesOfTheGatewaysEvents: they are those the document gives them.
func TestNamesOfTheGatewaysEvents(t *testing.T) {
	t.Parallel()
	var names []string
	for _, e := range watched() {
		names = append(names, watchedName(e))
	}
	require.Equal(t, []string{
		"tool_called", "tool_failed", "upstream_up", "upstream_down", "graph_synced", "edge_created", "edge_updated", "metrics_updated",
		"tool_quarantined", "tool_approved",
	}, names)
}
