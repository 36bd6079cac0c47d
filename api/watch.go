package api

import (
	"net/http"
	"slices"
	"strings"

	"comet/internal/auth"
	"comet/internal/places"
	"comet/models"
)

const (
	// watchPath is where the gateway's events are followed (AgentCards, “Streamable HTTP”).
	watchPath = "/events/stream"
	// maxWatchers is how many may at a time.
	maxWatchers = 100
)

// newWatchers has room for those who follow the gateway, all of them of one token if need be.
func newWatchers() *streams {
	s := newStreams(maxWatchers)
	s.each, s.places = maxWatchers, places.New(maxWatchers, maxWatchers)
	return s
}

// watched are the events of the gateway.
func watched() []models.EventType {
	return []models.EventType{
		models.EventToolCalled, models.EventToolFailed, models.EventUpstreamUp, models.EventUpstreamDown,
		models.EventGraphSynced, models.EventEdgeCreated, models.EventEdgeUpdated, models.EventMetricsUpdated,
		models.EventToolQuarantined, models.EventToolApproved,
	}
}

// watchedName is what the document calls an event: tool_called for tool.called, and
// edge_created for graph.edge_created.
func watchedName(t models.EventType) string {
	if t == models.EventGraphSynced {
		return "graph_synced"
	}
	return strings.ReplaceAll(strings.TrimPrefix(string(t), "graph."), ".", "_")
}

// streamGatewayEvents tells what happens at the gateway.
//
//	@Summary		Follow the gateway
//	@Description	Server-sent events of the MCP gateway: `connected` when the stream begins, `tool_called`, `tool_failed`, `upstream_up`, `upstream_down`, `graph_synced`, `edge_created`, `edge_updated`, `metrics_updated`, `tool_quarantined`, `tool_approved`, and `heartbeat` every 15 seconds. It is a view of the stream of `GET /api/v1/events`: `id` and `data` are the same, and `Last-Event-ID` goes on behind a position. A token without the scope `admin` hears of the calls of its own agent, of none where it is bound to no agent, and of nothing else: the names of servers and tools may not be for it. At most 100 clients follow at a time.
//	@ID				streamGatewayEvents
//	@Tags			events
//	@Produce		text/event-stream
//	@Security		BearerAuth[tools:call]
//	@Param			types			query	string	false	"Only events of these names, separated by commas"	maxlength(1000)	example(tool_called,tool_failed)
//	@Param			Last-Event-ID	header	string	false	"The position of the last event you have"	example(42)
//	@Success		200	{string}	string	"The stream"
//	@Header			200	{string}	Cache-Control
//	@Failure		400	"A parameter is unknown or malformed"
//	@Failure		503	"100 clients follow already"
//	@Header			503	{integer}	Retry-After
//	@Router			/events/stream [get]
func (s *Server) streamGatewayEvents(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r, "types")
	filter := readWatchFilter(q, caller(r))
	if err := q.Err(); err != nil {
		return err
	}
	after, err := lastEventID(r, nil)
	if err != nil {
		return err
	}
	return s.follow(w, r, after, &teller{
		of: s.watchers, write: s.asJSON, filter: filter, name: watchedName,
		message: []byte("event: connected\ndata: {}\n\n"), alive: "event: heartbeat\ndata: {}\n",
	})
}

// readWatchFilter reads what a client wants to hear of, and bounds it to what it may.
func readWatchFilter(q *query, p models.Principal) (f eventFilter) {
	var wanted []string
	if list := q.OptString("types", 1000); list != nil {
		wanted = strings.Split(*list, ",")
	}
	var known []string
	for _, t := range watched() {
		known = append(known, watchedName(t))
		if wanted == nil || slices.Contains(wanted, watchedName(t)) {
			f.types = append(f.types, t)
		}
	}
	for _, name := range wanted {
		if !slices.Contains(known, name) {
			q.Fail("types", "enum", "types must be a list of %s with commas between them, not %q", strings.Join(known, ", "), name)
			break
		}
	}
	if auth.Require(p, models.ScopeAdmin) != nil {
		f.callsOf = new(orZero(p.AgentID))
		f.types = slices.DeleteFunc(f.types, func(t models.EventType) bool { return t != models.EventToolCalled && t != models.EventToolFailed })
	}
	return f
}
