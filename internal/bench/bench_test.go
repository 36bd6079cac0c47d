package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	readers = 8  // callers of the routes that read
	writers = 64 // callers of the routes that create
)

const (
	baselineRaw   = "raw statements"
	baselineChain = "no-op, chain"
	baselineBare  = "no-op, bare"
)

// BenchmarkREST measures the REST API. Each iteration of a sub-benchmark is one round in which
// comet and its baselines run in turn.
func BenchmarkREST(b *testing.B) {
	h := openRegistryServer(b)
	var results []result
	for _, m := range h.measurements() {
		b.Run(m.name, func(b *testing.B) { results = append(results, m.run(b)...) })
	}
	printTable(os.Stdout, fmt.Sprintf("%d agents; %d callers.", population, readers), results)
}

func (h *testServer) measurements() []measurement {
	const list, uncounted = "/api/v1/agents?limit=100", "/api/v1/agents?limit=100&total=false"
	return []measurement{
		h.costOfChain(),
		h.agent("Get/Specialist", "GET an L2, 4 children, 15 outcomes", specialists),
		h.agent("Get/Assistant", "GET an L3", assistants),
		h.list("List/First", "list of 100 with total", list, "all?limit=100"),
		h.list("List/Uncounted", "list of 100, total=false", uncounted, "uncounted?limit=100"),
		h.list("List/Sphere+Level", "... of a sphere and level", list+"&sphere_id=3&level=2", "placed?limit=100&sphere_id=3&level=2"),
		h.list("List/Active", "... of the active", list+"&active=true", "active?limit=100"),
		h.list("List/Capability", "... with a capability", list+"&capability=payroll", "capability?limit=100&capability=payroll"),
		h.deepPage(),
		h.list("List/Offset90000", "offset 90,000, total=false", uncounted+"&offset=90000", "offset?limit=100&offset=90000").reported(),
	}
}

func (m measurement) reported() measurement {
	for i := range m.against {
		m.against[i].aim = 0
	}
	return m
}

// costOfChain compares a no-op with and without the middleware chain, which may cost less than
// half of the request without it.
func (h *testServer) costOfChain() measurement {
	return measurement{
		name: "Chain", what: "no-op with the chain",
		open: func(b *testing.B) []*subject {
			b.Helper()
			return []*subject{h.noop(b, baselineChain, h.chain, readers), h.noop(b, baselineBare, h.bare, readers)}
		},
		against: []comparison{{subject: baselineBare, metric: "of_bare", aim: 1 / 1.5}},
	}
}

func (h *testServer) noop(b *testing.B, name, addr string, callers int) *subject {
	b.Helper()
	return replay(b, name, addr, callers, [][]byte{get("/bench/noop", adminToken)})
}

// replay is a subject that repeats the same requests, each caller from a different one, and
// fails if a response differs from the first response to that request.
func replay(b *testing.B, name, addr string, callers int, requests [][]byte) *subject {
	b.Helper()
	first := newCaller(b, addr)
	bodies := make([][]byte, len(requests))
	for i, request := range requests {
		status, body, err := first.exchange(request)
		require.NoError(b, err)
		require.Equal(b, 200, status, "%s\n%s", request, body)
		bodies[i] = bytes.Clone(body)
	}
	all := newCallers(b, addr, callers)
	return &subject{name: name, callers: callers, slice: readSlice, do: func(c, turn int) error {
		i := (c*len(requests)/callers + turn) % len(requests)
		return all[c].expect(requests[i], 200, bodies[i])
	}}
}

func newCallers(b *testing.B, addr string, n int) []*caller {
	b.Helper()
	all := make([]*caller, n)
	for i := range all {
		all[i] = newCaller(b, addr)
	}
	return all
}

// read compares comet's requests with those to the raw handlers, whose responses must be equal,
// and with the no-op.
func (h *testServer) read(name, what string, ours, raw [][]byte) measurement {
	return measurement{
		name: name, what: what,
		open: func(b *testing.B) []*subject {
			b.Helper()
			c := newCaller(b, h.chain)
			for i := range ours {
				requireSame(b, c, ours[i], raw[i])
			}
			return []*subject{
				replay(b, "ours", h.chain, readers, ours), replay(b, baselineRaw, h.chain, readers, raw),
				h.noop(b, baselineChain, h.chain, readers), h.noop(b, baselineBare, h.bare, readers),
			}
		},
		against: []comparison{{subject: baselineRaw, metric: "of_raw", aim: 0.95}, {subject: baselineChain, metric: "of_noop_chain"}, {subject: baselineBare, metric: "of_noop_bare"}},
	}
}

func (h *testServer) list(name, what, path, raw string) measurement {
	return h.read(name, what, [][]byte{get(path, adminToken)}, [][]byte{get("/bench/raw/lists/"+raw, adminToken)})
}

// requireSame compares two responses; only comet's has a cursor for the next page.
func requireSame(b *testing.B, c *caller, ours, raw []byte) {
	b.Helper()
	var documents [2]map[string]any
	for i, request := range [][]byte{ours, raw} {
		status, body, err := c.exchange(request)
		require.NoError(b, err)
		require.Equal(b, 200, status, "%s\n%s", request, body)
		require.NoError(b, json.Unmarshal(body, &documents[i]), "%s", body)
		delete(documents[i], "next_cursor")
	}
	require.True(b, reflect.DeepEqual(documents[0], documents[1]), "the raw handler responds differently to %s", ours)
}

// specialists and assistants return ids spread over the table.
func specialists(i int) string { return specialist(i * 37 % busy) }
func assistants(i int) string  { return assistant(i*37%families(), i%(family-1)) }

// agent reads agents by id.
func (h *testServer) agent(name, what string, id func(int) string) measurement {
	ours, raw := make([][]byte, busy), make([][]byte, busy)
	for i := range ours {
		ours[i], raw[i] = get("/api/v1/agents/"+id(i), adminToken), get("/bench/raw/agents/"+id(i), adminToken)
	}
	return h.read(name, what, ours, raw)
}

// deepPage compares the page after 90,000 agents with the first page.
func (h *testServer) deepPage() measurement {
	const first = "/api/v1/agents?limit=100&total=false"
	m := measurement{name: "List/Cursor90000", what: "cursor page at 90,000"}
	m.open = func(b *testing.B) []*subject {
		b.Helper()
		last, cursor := endOfPage(b, newCaller(b, h.chain), get(first+"&offset=89900", adminToken))
		page := h.list(m.name, m.what, "/api/v1/agents?limit=100&cursor="+cursor, "after?limit=100&after="+last)
		return append(page.open(b), replay(b, "first page", h.chain, readers, [][]byte{get(first, adminToken)}))
	}
	m.against = append([]comparison{{subject: "first page", metric: "of_first", aim: 0.95}}, h.read("", "", nil, nil).against...)
	return m
}

// endOfPage returns the last agent of a page and the cursor after it.
func endOfPage(b *testing.B, c *caller, request []byte) (last, cursor string) {
	b.Helper()
	status, body, err := c.exchange(request)
	require.NoError(b, err)
	require.Equal(b, 200, status, "%s", body)
	var page struct {
		Agents []struct{ ID string }
		Next   string `json:"next_cursor"`
	}
	require.NoError(b, json.Unmarshal(body, &page))
	return url.QueryEscape(page.Agents[len(page.Agents)-1].ID), url.QueryEscape(page.Next)
}
