package api_test

import (
	"encoding/xml"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/models"
)

// graphBody is an answer of GET /api/v1/tools/graph.
type graphBody struct {
	Nodes []struct {
		ID, Server, Name string
		Runs             int64
		Rank             float64
		Community        int
	}
	Edges       []graphEdge
	Total       int `json:"total_nodes"`
	Communities int
	Density     float64
	ComputedAt  time.Time `json:"computed_at"`
}

type graphEdge struct {
	From, To   string
	Runs       int64
	Confidence float64
}

const graphPath = "/api/v1/tools/graph"

// TestToolGraph reads the graph and its paths with tokens that see different tools.
func TestToolGraph(t *testing.T) {
	t.Parallel()
	runOnEveryDatabase(t, func(t *testing.T, h *fixture) {
		var empty graphBody
		h.do(t, "GET", graphPath, "").decode(t, http.StatusOK, &empty)
		require.NotNil(t, empty.Nodes)
		require.NotNil(t, empty.Edges)
		h.do(t, "GET", graphPath+"/path?from=a:b&to=c:d", "").problem(t, http.StatusNotFound, errs.NotFound)

		const search, middle, code, missing = "agentcards:search_tools", "comet:submit_task", "agentcards:execute_code", "agentcards:no_such_tool"
		for range 3 {
			require.NoError(t, h.index.Record([]string{search, middle}))
		}
		require.NoError(t, h.index.Record([]string{middle, code}))
		require.NoError(t, h.index.Record([]string{code, missing}))
		require.NoError(t, h.index.Flush(t.Context()))

		var g graphBody
		h.do(t, "GET", graphPath, "").decode(t, http.StatusOK, &g)
		require.Len(t, g.Nodes, 3, "tools that exist")
		runs := map[string]int64{}
		for _, n := range g.Nodes {
			runs[n.ID] = n.Runs
		}
		require.Equal(t, map[string]int64{search: 3, middle: 4, code: 2}, runs)
		require.Equal(t, []any{3, "agentcards", "execute_code"}, []any{g.Total, g.Nodes[0].Server, g.Nodes[0].Name})
		require.ElementsMatch(t, []graphEdge{{search, middle, 3, 0.75}, {middle, code, 1, 0.2}}, g.Edges)

		var limited graphBody
		h.do(t, "GET", graphPath+"?limit=1", "").decode(t, http.StatusOK, &limited)
		require.Equal(t, []int{1, 0, 3}, []int{len(limited.Nodes), len(limited.Edges), limited.Total})
		h.do(t, "GET", graphPath+"?limit=5001", "").problem(t, http.StatusBadRequest, errs.InvalidParameter)
		h.do(t, "GET", graphPath+"?format=dot", "").problem(t, http.StatusBadRequest, errs.InvalidParameter)

		var p struct {
			Path       []string
			Edges      []graphEdge
			Confidence float64
		}
		h.do(t, "GET", graphPath+"/path?from="+url.QueryEscape(code)+"&to="+search, "").decode(t, http.StatusOK, &p)
		require.Equal(t, []string{code, middle, search}, p.Path)
		require.Equal(t, []graphEdge{{code, middle, 1, 0.2}, {middle, search, 3, 0.75}}, p.Edges)
		h.do(t, "GET", graphPath+"/path?from="+search, "").problem(t, http.StatusBadRequest, errs.InvalidParameter)
		require.InDelta(t, 0.15, p.Confidence, 1e-9)
		h.checkGraphML(t, len(g.Nodes), len(g.Edges))

		// A policy hides the tool in the middle: the others are not connected.
		issued, err := h.auth.Create(t.Context(), models.System(), auth.TokenDraft{Name: new("limited"), Scopes: []models.Scope{models.ScopeToolsCall}}, nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, h.do(t, "PUT", "/api/v1/tokens/"+issued.Token.ID+"/tool-policy", `{"deny":[{"tool":"`+middle+`"}]}`).status)
		with := []string{"Authorization", "Bearer " + issued.Secret}
		h.do(t, "GET", graphPath, "", with...).decode(t, http.StatusOK, &g)
		require.Equal(t, []int{2, 0}, []int{len(g.Nodes), len(g.Edges)})
		hidden := h.do(t, "GET", graphPath+"/path?from="+search+"&to="+middle, "", with...).problem(t, http.StatusNotFound, errs.NotFound)
		require.Contains(t, hidden.Detail, "the graph has no tool \""+middle)
		apart := h.do(t, "GET", graphPath+"/path?from="+search+"&to="+code, "", with...).problem(t, http.StatusNotFound, errs.NotFound)
		require.Contains(t, apart.Detail, "no path of tools")
		h.do(t, "GET", graphPath, "", "Authorization", "Bearer "+h.token(t, models.ScopeAgentsRead)).problem(t, http.StatusForbidden, errs.MissingScope)
	})
}

// checkGraphML parses the graph as XML.
func (h *fixture) checkGraphML(t *testing.T, nodes, edges int) {
	t.Helper()
	got := h.do(t, "GET", graphPath+"?format=graphml", "")
	require.Equal(t, http.StatusOK, got.status)
	require.Equal(t, "application/graphml+xml", got.header.Get("Content-Type"))
	var doc struct {
		XMLName xml.Name `xml:"http://graphml.graphdrawing.org/xmlns graphml"`
		Keys    []struct {
			ID string `xml:"id,attr"`
		} `xml:"key"`
		Graph struct {
			Nodes []struct {
				ID   string `xml:"id,attr"`
				Data []struct {
					Key  string `xml:"key,attr"`
					Text string `xml:",chardata"`
				} `xml:"data"`
			} `xml:"node"`
			Edges []struct {
				Source string `xml:"source,attr"`
				Target string `xml:"target,attr"`
			} `xml:"edge"`
		} `xml:"graph"`
	}
	require.NoError(t, xml.Unmarshal(got.body, &doc), "%s", got.body)
	require.Equal(t, []int{6, nodes, edges}, []int{len(doc.Keys), len(doc.Graph.Nodes), len(doc.Graph.Edges)})
	require.Equal(t, "server", doc.Graph.Nodes[0].Data[0].Key)
	require.Equal(t, "agentcards", doc.Graph.Nodes[0].Data[0].Text)
}
