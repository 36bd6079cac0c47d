package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/events"
	"comet/internal/orchestrator"
	"comet/internal/registry"
	"comet/internal/testkit"
	"comet/internal/tools"
	"comet/internal/toolsearch"
	"comet/internal/upstream"
	"comet/models"
	"comet/store/storetest"
)

// sdkAccept is an Accept header that leaves a call to the SDK.
const sdkAccept = "application/*, text/*"

// serveTools is serve with an upstream over HTTP whose tools return every kind of result.
func serveTools(t *testing.T) (endpoint, *Handler) {
	t.Helper()
	s := mcp.NewServer(&mcp.Implementation{Name: "up", Version: "1"}, nil)
	for name, do := range resultsOfEveryKind() {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return do(ctx, r) })
	}
	return serveUpstream(t, s, true)
}

// serveUpstream is serve with an upstream over HTTP that has the tool echo. Only one without sessions
// supports the newest version.
func serveUpstream(t *testing.T, s *mcp.Server, stateless bool) (endpoint, *Handler) {
	t.Helper()
	db := storetest.Open(t, "sqlite")
	work, tokens := testkit.NewWork(t, db, orchestrator.Options{}), auth.New(db.Store, nil)
	require.NoError(t, registry.New(db.Store, nil).Bootstrap(t.Context()))
	var hub *tools.Service
	up := upstream.New(&upstream.Options{OnChange: func(c upstream.Change) { hub.OnUpstreamChange(c) }})
	hub = tools.New(tools.Dependencies{
		Store: db.Store, Registry: registry.New(db.Store, nil), Usage: work.Ledger, Orchestrator: work.Orchestrator, Feed: events.NewFeed(db.Store, nil),
		Upstreams: up, Index: toolsearch.New(db.Store, nil),
	}, &tools.Options{Clock: db.Now})
	g := New(hub, nil)
	remote := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: stateless, PropagateRequestCancellation: stateless}))
	t.Cleanup(func() {
		remote.CloseClientConnections()
		remote.Close()
	})
	_, err := up.Apply(t.Context(), "test", []upstream.Server{{ID: "up", URL: remote.URL}})
	require.NoError(t, err)
	require.NoError(t, up.Start(t.Context()))
	require.NoError(t, hub.Start(t.Context()))
	d, err := NewHandler(g, tokens, nil)
	require.NoError(t, err)
	require.NoError(t, d.Start(t.Context()))
	srv := httptest.NewServer(d)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		d.Drain()
		srv.Close()
		require.NoError(t, d.Stop(ctx))
		require.NoError(t, hub.Stop(ctx))
		require.NoError(t, up.Stop(ctx))
	})
	made, err := tokens.Create(t.Context(), models.System(), auth.TokenDraft{Name: new("client"), Scopes: []models.Scope{models.ScopeToolsCall}}, nil)
	require.NoError(t, err)
	e := endpoint{testkit.NewClient(t, srv.URL, made.Secret)}
	session := e.begin(t, `{}`)
	require.Eventually(t, func() bool {
		r := e.send(t, http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up:echo"}}`, "Mcp-Session-Id", session)
		return !strings.Contains(r.String(), "isError")
	}, soon, time.Millisecond)
	return e, d
}

// resultsOfEveryKind returns tools by name.
func resultsOfEveryKind() map[string]func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	text := func(s string) []mcp.Content { return []mcp.Content{&mcp.TextContent{Text: s}} }
	always := func(res mcp.CallToolResult) func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			copied := res
			return &copied, nil
		}
	}
	return map[string]func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error){
		"echo": func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: text(string(r.Params.Arguments))}, nil
		},
		"structured": always(mcp.CallToolResult{Content: text(""), StructuredContent: map[string]any{"n": 1.5, "list": []any{"a", nil}}}),
		"fails":      always(mcp.CallToolResult{Content: text("no \"luck\" <b>\u2028</b>"), IsError: true}),
		"described":  always(mcp.CallToolResult{Content: text("x"), Meta: mcp.Meta{"own": map[string]any{"a": "b"}}}),
		"image":      always(mcp.CallToolResult{Content: []mcp.Content{&mcp.ImageContent{Data: []byte("png"), MIMEType: "image/png"}, &mcp.TextContent{Text: "t"}}}),
		"annotated":  always(mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "t", Annotations: &mcp.Annotations{Priority: 0.5}}}}),
		"none":       always(mcp.CallToolResult{Content: []mcp.Content{}}),
		"refuses": func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, &jsonrpc.Error{Code: -32050, Message: "not today"}
		},
		"held": func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if len(r.Params.Arguments) > len("{}") {
				return &mcp.CallToolResult{Content: text("")}, nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"logs": func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: "unknown", Progress: 1})
			_ = r.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "error", Data: "told"}) //nolint:staticcheck // servers send it
			return &mcp.CallToolResult{Content: text("logged")}, nil
		},
	}
}

// outcome is the status and the message of a response.
func outcomeIn(t *testing.T, r testkit.Response) (int, any) {
	t.Helper()
	body := string(r.Body)
	if at := strings.LastIndex(body, "\ndata: "); at >= 0 { // a priming event may precede it
		body = body[at+len("\ndata: "):]
	}
	var v any
	if strings.TrimSpace(body) != "" {
		require.NoError(t, json.Unmarshal([]byte(body), &v), "%s", r.Body)
	}
	return r.Status, v
}

func TestDirectCall(t *testing.T) {
	t.Parallel()
	e, _ := serveTools(t)
	var bodies []string
	request := func(params string) {
		bodies = append(bodies, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`)
	}
	for _, name := range slices.Sorted(maps.Keys(resultsOfEveryKind())) {
		request(`{"name":"up__` + name + `","arguments":{"path":"x"},META}`)
	}
	request(`{"name":"up:echo","arguments":{"a":[1,2,{"b":"ü\n"}]},META}`)
	request(`{"name":"up__echo","arguments": {"a" :
		1 }, META}`)
	request(`{"name":"up__echo","arguments":null,META}`)
	request(`{"name":"up__echo","arguments":[1],META}`)
	request(`{"name":"up__echo","arguments":"text",META}`)
	request(`{"name":"up__echo",META}`)
	request(`{"name":"up__echo","arguments":{"a":1,"a":2},META}`)
	request(`{"name":"up__echo","arguments":{"a":` + strings.Repeat("[", 1001) + strings.Repeat("]", 1001) + `},META}`)
	request(`{"name":"up__missing","arguments":{},META}`)
	request(`{"name":"","arguments":{},META}`)
	request(`{"name":5,META}`)
	request(`{"arguments":{},META}`)
	request(`{"name":"up__echo","requestState":"none",META}`)
	request(`{"name":"up__echo","arguments":{},"unknown":1,META}`)
	request(`[]`)
	request(`{"name":"up__echo","arguments":{},"_meta":{"progressToken":1}}`)
	request(`{"name":"up__echo","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`)
	request(`{"name":"up__echo","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":5},"io.modelcontextprotocol/clientCapabilities":{}}}`)
	request(`{"name":"up__echo","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}`)
	request(`{"name":"up__echo","arguments":{},"_meta":null}`)
	request(`{"name":"up__echo","arguments":{},"_meta":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","other":{"x":1}}}`)
	for _, id := range []string{`"text"`, `"\u0061"`, `0`, `-7`, `1.0`, `1.5`, `12345678901234567890`, `null`, `true`, `[]`, `""`} {
		bodies = append(bodies, `{"jsonrpc":"2.0","id":`+id+`,"method":"tools/call","params":{"name":"up__echo","arguments":{},META}}`)
	}
	bodies = append(bodies,
		`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"up__echo",META}}`,
		`{"jsonrpc":"1.0","id":1,"method":"tools/call","params":{"name":"up__echo",META}}`,
		`{"id":1,"method":"tools/call","params":{"name":"up__echo",META}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__echo",META},"result":{}}`,
		`{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/call","params":{"name":"up__echo",META}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__echo",META}} x`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__echo`+"\xff"+`",META}}`,
		`[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__echo",META}}]`,
	)
	session, served := e.begin(t, `{}`), map[string]int{}
	for _, revision := range []struct {
		name, meta string
		header     []string
	}{
		{"without sessions", meta, []string{"Mcp-Protocol-Version", statelessVersion, "Mcp-Method", "tools/call"}},
		{"without sessions and a wrong method header", meta, []string{"Mcp-Protocol-Version", statelessVersion, "Mcp-Method", "tools/list"}},
		{"with sessions", `"_meta":{}`, []string{"Mcp-Protocol-Version", "2025-11-25", "Mcp-Session-Id", session}},
		{"with sessions and no version header", `"_meta":{}`, []string{"Mcp-Session-Id", session}},
		{"with the _meta of the other version", meta, []string{"Mcp-Session-Id", session}},
		{"with an unknown session", `"_meta":{}`, []string{"Mcp-Protocol-Version", "2025-11-25", "Mcp-Session-Id", "none"}},
		{"with an unknown version", `"_meta":{}`, []string{"Mcp-Protocol-Version", "2020-01-01", "Mcp-Session-Id", session}},
	} {
		for _, body := range bodies {
			t.Run(revision.name+"/"+body[:min(len(body), 150)], func(t *testing.T) {
				body := strings.ReplaceAll(body, "META", revision.meta)
				header := revision.header
				if name := `"name":"`; strings.Contains(body, name) {
					_, rest, _ := strings.Cut(body, name)
					called, _, _ := strings.Cut(rest, `"`)
					header = append(slices.Clone(header), "Mcp-Name", strings.ToValidUTF8(called, "?"))
				}
				r := e.send(t, http.MethodPost, body, header...)
				if r.Status == http.StatusOK && r.Header.Get("Content-Type") == "application/json" && strings.Contains(r.String(), `"result"`) {
					served[revision.name]++
				}
				status, direct := outcomeIn(t, r)
				wantStatus, want := outcomeIn(t, e.send(t, http.MethodPost, body, append(slices.Clone(header), "Accept", sdkAccept)...))
				require.Equal(t, wantStatus, status, "%v\n%v", want, direct)
				require.Equal(t, want, direct)
			})
		}
	}
	require.Equal(t, map[string]int{"without sessions": 23, "with sessions": 23, "with sessions and no version header": 23, "with the _meta of the other version": 1}, served, "calls without the SDK")
}

// begin starts a session with the capabilities of a client and returns its id.
func (e endpoint) begin(t *testing.T, capabilities string) string {
	t.Helper()
	r := e.send(t, http.MethodPost, fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":%s,"clientInfo":{"name":"raw","version":"1"}}}`, capabilities))
	require.Equal(t, http.StatusOK, r.Status, "%s", r.Body)
	return r.Header.Get("Mcp-Session-Id")
}

func TestDirectCallOfASession(t *testing.T) {
	t.Parallel()
	const held = `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"up__held","arguments":{}}}`
	e, d := serveTools(t)
	session := e.begin(t, `{}`)
	post := func(t *testing.T, body string, header ...string) testkit.Response {
		return e.send(t, http.MethodPost, body, append([]string{"Mcp-Session-Id", session}, header...)...)
	}

	t.Run("is cancelled by its id, which no other call may use meanwhile", func(t *testing.T) {
		done := make(chan testkit.Response, 1)
		go func() { done <- post(t, held) }()
		require.Eventually(t, func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return len(d.sessions[session].calls) == 1
		}, soon, time.Millisecond)
		require.Equal(t, http.StatusBadRequest, post(t, held).Status)
		r := post(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"\u0061"}}`)
		require.Equal(t, http.StatusAccepted, r.Status)
		r = <-done
		require.Equal(t, http.StatusOK, r.Status)
		require.Equal(t, "text/event-stream", r.Header.Get("Content-Type"))
		require.Empty(t, r.String(), "a cancelled request gets no response")
	})

	t.Run("is left to the SDK if the client answers questions", func(t *testing.T) {
		asked := e.begin(t, `{"elicitation":{}}`)
		r := post(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__echo"}}`, "Mcp-Session-Id", asked)
		require.Equal(t, "text/event-stream", r.Header.Get("Content-Type"))
	})
}

func TestIdleSessionsEnd(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	token := h.token(t)
	session := h.begin(t, token)
	h.handler.endIdle(time.Now().Add(-soon))
	resp, body := h.post(t, token, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id", session)
	require.Equal(t, http.StatusOK, resp.StatusCode, body)
	require.Eventually(t, func() bool { // the session has one more request until its response is written
		h.handler.endIdle(time.Now().Add(soon))
		resp, _ := h.post(t, token, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id", session)
		return resp.StatusCode == http.StatusNotFound
	}, soon, time.Millisecond)
}

// FuzzReadDirectCall checks that the SDK reads every direct call in the same way.
func FuzzReadDirectCall(f *testing.F) {
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"b":[1,"\u00e4"]},` + meta + `}}`,
		`{"jsonrpc":"2.0","id":"x\n","method":"tools/call","params":{"name":"a","_meta":{"traceparent":"t"}}}`,
		`{"jsonrpc":"2.0","id":1.0,"method":"tools/call","params":{"name":"a"}} `,
	} {
		f.Add([]byte(body))
	}
	checker := newRequestChecker()
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, header := range []http.Header{
			{"Mcp-Protocol-Version": {statelessVersion}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"a"}}, {"Mcp-Session-Id": {"s"}},
		} {
			header.Set("Accept", "application/json, text/event-stream")
			header.Set("Content-Type", "application/json")
			c, ok := readDirectCall(&http.Request{Header: header}, body)
			if !ok {
				continue
			}
			req, reply := checker.checkMessage(body)
			require.Nil(t, reply)
			require.Equal(t, "tools/call", req.Method)
			var id any
			require.NoError(t, json.Unmarshal(c.id, &id))
			want, err := jsonrpc.MakeID(id)
			require.NoError(t, err)
			require.Equal(t, want, req.ID)
			var params mcp.CallToolParamsRaw
			require.NoError(t, json.Unmarshal(req.Params, &params))
			require.Equal(t, params.Name, c.name)
			require.Equal(t, string(params.Arguments), string(c.arguments))
		}
	})
}
