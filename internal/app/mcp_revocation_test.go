package app_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/app"
	"comet/internal/testkit/mcptest"
)

// lasting has the open streams of a token: the stream of a session, and one of the newest revision.
type lasting struct {
	session []string
	streams map[string]*bufio.Reader
}

const listen = `"notifications":{"toolsListChanged":true}`

func (c *client) opens(t *testing.T) lasting {
	t.Helper()
	header := c.initialize(t)
	body, own := modern("subscriptions/listen", "", listen)
	return lasting{header, map[string]*bufio.Reader{
		sessions: c.stream(t, http.MethodGet, "", header...),
		newest:   c.stream(t, http.MethodPost, body, own...),
	}}
}

// requireEnds requires that streams end.
func (o lasting) requireEnds(t *testing.T) {
	t.Helper()
	for revision, lines := range o.streams {
		ended := make(chan struct{})
		go func() { _, _ = io.Copy(io.Discard, lines); close(ended) }()
		eventually(t, func() bool {
			select {
			case <-ended:
				return true
			default:
				return false
			}
		}, "the stream of "+revision+" ends")
	}
}

// TestMCPRevokedToken checks that revoking a token ends its sessions and calls, and not those of
// other tokens. TestLapsed covers expiry.
func TestMCPRevokedToken(t *testing.T) {
	t.Parallel()
	hubs(t, func(t *testing.T, database string) {
		h := openHub(t, database, nil)
		bystander := h.holder(t, "")
		untouched := bystander.opens(t)

		for name, end := range map[string]func(t *testing.T) (*client, func()){
			"ByItsRevocation": func(t *testing.T) (*client, func()) {
				t.Helper()
				who := h.holder(t, "")
				return who.client, func() { h.must(t, http.StatusNoContent, http.MethodDelete, "/api/v1/tokens/"+who.id, nil) }
			},
			"ByANewSecret": func(t *testing.T) (*client, func()) {
				t.Helper()
				who := h.holder(t, "")
				return who.client, func() { h.must(t, http.StatusOK, http.MethodPost, "/api/v1/tokens/"+who.id+"/rotate", nil) }
			},
			"ByItsAgentsDeactivation": func(t *testing.T) (*client, func()) {
				t.Helper()
				h.agent(t, "leaver", 1000)
				return h.holder(t, "leaver").client, func() {
					h.must(t, http.StatusNoContent, http.MethodDelete, "/api/v1/agents/leaver", nil)
				}
			},
		} {
			t.Run(name, func(t *testing.T) {
				who, ends := end(t)
				open := who.opens(t)
				ends()
				open.requireEnds(t)
				require.Equal(t, http.StatusUnauthorized, who.say(t, listTools, open.session...).status)
			})
		}

		if database == "postgres" { // which replicas share
			t.Run("AtAnotherReplica", func(t *testing.T) {
				cfg := h.cfg
				cfg.Data, cfg.SecretKeyFile = t.TempDir(), filepath.Join(h.cfg.Data, "secret.key")
				other := started(t, cfg)
				t.Cleanup(func() { require.NoError(t, other.Stop(context.WithoutCancel(t.Context()))) })
				who := h.holder(t, "")
				there := newClient(t, other.URL(), who.Token)
				open := there.opens(t)
				h.must(t, http.StatusNoContent, http.MethodDelete, "/api/v1/tokens/"+who.id, nil)
				open.requireEnds(t)
				require.Equal(t, http.StatusUnauthorized, there.say(t, listTools, open.session...).status)
			})
		}

		require.Equal(t, http.StatusOK, bystander.say(t, listTools, untouched.session...).status, "another token's session goes on")
		require.Equal(t, http.StatusConflict, bystander.raw(t, http.MethodGet, "/mcp", "", untouched.session...).status, "and so does its stream")
	})
}

// slow starts a server whose tool returns when the test releases it.
func slow(t *testing.T) (paper *mcptest.Server, began, goOn chan struct{}) {
	t.Helper()
	began, goOn = make(chan struct{}, 10), make(chan struct{})
	paper = mcptest.New(t, "paper").Tool(&mcp.Tool{Name: "slow"}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		began <- struct{}{}
		select {
		case <-goOn:
			return mcptest.Texts("done"), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	return paper, began, goOn
}

// TestMCPRunningCallIsAnsweredAfterRevocation checks that a call in progress gets its response,
// even if meanwhile its token is revoked or the server stops.
func TestMCPRunningCallIsAnsweredAfterRevocation(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, h *hub, who *issued) (ended chan error){
		"WhenItsTokenEnds": func(t *testing.T, h *hub, who *issued) chan error {
			t.Helper()
			h.must(t, http.StatusNoContent, http.MethodDelete, "/api/v1/tokens/"+who.id, nil)
			ended := make(chan error, 1)
			ended <- nil
			return ended
		},
		"WhenTheServerEnds": func(t *testing.T, h *hub, _ *issued) chan error {
			t.Helper()
			ended := make(chan error, 1)
			go func() { ended <- h.app.Stop(context.WithoutCancel(t.Context())) }()
			return ended
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			paper, began, goOn := slow(t)
			h := openHub(t, "sqlite", nil, paper)
			who := h.holder(t, "")
			open := who.opens(t)
			answered := make(chan string, 1)
			go func() {
				call := json.RawMessage(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"paper__slow"}}`)
				status, body, err := who.do(t.Context(), http.MethodPost, "/mcp", call, append(open.session, "Accept", "application/json, text/event-stream", "Content-Type", "application/json")...)
				answered <- fmt.Sprint(status, err, string(body))
			}()
			<-began
			ended := end(t, h, who)
			open.requireEnds(t)
			close(goOn)
			require.Contains(t, <-answered, `"text":"done"`)
			require.NoError(t, <-ended)
		})
	}
}

// TestMCPSessionLimitPerToken checks that a token at its session limit does not affect other
// tokens.
func TestMCPSessionLimitPerToken(t *testing.T) {
	t.Parallel()
	h := openHub(t, "sqlite", nil)
	greedy, modest := h.holder(t, ""), h.holder(t, "")
	const most = 1000
	var one []string
	for range most {
		one = greedy.initialize(t)
	}
	w := greedy.say(t, beginSession)
	requireRefused(t, w, http.StatusServiceUnavailable, "LIMIT_REACHED", fmt.Sprint(most))
	require.Equal(t, "60", w.header.Get("Retry-After"))
	requireRefused(t, greedy.modern(t, "subscriptions/listen", "", listen), http.StatusServiceUnavailable, "LIMIT_REACHED")
	require.Equal(t, http.StatusOK, greedy.modern(t, "tools/list", "", "").status, "what needs no place has one")
	modest.initialize(t)

	require.Equal(t, http.StatusNoContent, greedy.raw(t, http.MethodDelete, "/mcp", "", one...).status)
	eventually(t, func() bool { return greedy.say(t, beginSession).status == http.StatusOK }, "a session that ended gives its place back")
	requireRefused(t, greedy.say(t, beginSession), http.StatusServiceUnavailable, "LIMIT_REACHED")
}

// TestMCPStopWithOpenSessions checks that a server with open sessions stops and ends them.
func TestMCPStopWithOpenSessions(t *testing.T) {
	t.Parallel()
	cfg := configured(t, "sqlite")
	a, err := app.New(t.Context(), cfg, nil)
	require.NoError(t, err)
	require.NoError(t, a.Start(t.Context()))
	c := newClient(t, a.URL(), adminToken(t, cfg.Data))
	open := c.opens(t)
	c.initialize(t)
	require.NoError(t, a.Stop(context.WithoutCancel(t.Context())))
	open.requireEnds(t)
}
