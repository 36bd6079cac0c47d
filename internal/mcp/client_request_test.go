package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/tools"
	"comet/internal/upstream"
)

// asksEverything returns the questions of one round, and answered the replies as text.
func asksEverything() mcp.InputRequestMap {
	return mcp.InputRequestMap{
		"form":  &mcp.ElicitParams{Mode: "form", Message: "sure?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"ok":{"type":"boolean"}}}`)},
		"url":   &mcp.ElicitParams{Mode: "url", Message: "open", URL: "https://example.com", ElicitationID: "e"},
		"model": &mcp.CreateMessageWithToolsParams{MaxTokens: 5, Messages: []*mcp.SamplingMessageV2{{Role: "user", Content: []mcp.Content{&mcp.TextContent{Text: "hello"}}}}}, //nolint:staticcheck // clients of all revisions have it
		"roots": &mcp.ListRootsParams{},                                                                                                                                       //nolint:staticcheck // clients of all revisions have it
	}
}

func answered(answers mcp.InputResponseMap) string {
	form, url := answers["form"].(*mcp.ElicitResult), answers["url"].(*mcp.ElicitResult)
	model, roots := answers["model"].(*mcp.CreateMessageWithToolsResult), answers["roots"].(*mcp.ListRootsResult) //nolint:staticcheck // clients of all revisions have it
	return form.Action + " " + url.Action + " " + model.Model + " " + roots.Roots[0].URI
}

// newAskingServer returns an upstream that asks, logs and returns what it gets.
func newAskingServer(held chan struct{}) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "up", Version: "1"}, &mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{Logging: &mcp.LoggingCapabilities{}}}) //nolint:staticcheck // clients of all revisions have it
	add := func(name string, do mcp.ToolHandler) {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, do)
	}
	text := func(said string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: said}}}
	}
	add("echo", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		meta := mcp.Meta{}
		for _, name := range []string{"traceparent", "own", "progressToken"} {
			meta[name] = r.Params.Meta[name]
		}
		said, err := json.Marshal(meta)
		return text(string(said)), err
	})
	add("asks", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if r.Params.RequestState == "mine" {
			return text(answered(r.Params.InputResponses)), nil
		}
		return &mcp.CallToolResult{RequestState: "mine", InputRequests: asksEverything()}, nil
	})
	add("ask", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		got, err := r.Session.Elicit(ctx, asksEverything()["form"].(*mcp.ElicitParams))
		if err != nil {
			return nil, err
		}
		model, err := r.Session.CreateMessageWithTools(ctx, asksEverything()["model"].(*mcp.CreateMessageWithToolsParams)) //nolint:staticcheck // clients of all revisions have it
		if err != nil {
			return nil, err
		}
		return text(got.Action + " " + model.Model), nil
	})
	add("held", func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		held <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	add("logs", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for _, level := range []mcp.LoggingLevel{"debug", "warning", "error"} { //nolint:staticcheck // clients of all revisions have it
			if err := r.Session.Log(ctx, &mcp.LoggingMessageParams{Level: level, Data: "said"}); err != nil { //nolint:staticcheck // clients of all revisions have it
				return nil, err
			}
		}
		return text("logged"), nil
	})
	add("needs", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, &jsonrpc.Error{Code: mcp.CodeMissingRequiredClientCapabilities, Message: "no sampling", Data: json.RawMessage(`{"requiredCapabilities":{"sampling":{}}}`)}
	})
	s.AddPrompt(&mcp.Prompt{Name: "asks"}, func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		if r.Params.RequestState == "mine" {
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{}, Description: answered(r.Params.InputResponses)}, nil
		}
		return &mcp.GetPromptResult{RequestState: "mine", InputRequests: asksEverything()}, nil
	})
	s.AddResource(&mcp.Resource{URI: "up://asks", Name: "asks"}, func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		if r.Params.RequestState == "mine" {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: answered(r.Params.InputResponses)}}}, nil
		}
		return &mcp.ReadResourceResult{RequestState: "mine", InputRequests: asksEverything()}, nil
	})
	return s
}

// authorized adds the token of a client to requests.
type authorized string

func (a authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(a))
	return httpClient.Transport.RoundTrip(r)
}

// connect connects a client that answers every question, and returns the levels of its log messages.
func (e endpoint) connect(t *testing.T, version string) (*mcp.ClientSession, func() []string) {
	t.Helper()
	var mu sync.Mutex
	var levels []string
	c := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{
			RootsV2: &mcp.RootCapabilities{}, Sampling: &mcp.SamplingCapabilities{}, //nolint:staticcheck // clients of all revisions have it
			Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{}},
		},
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept"}, nil
		},
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) { //nolint:staticcheck // clients of all revisions have it
			return &mcp.CreateMessageResult{Model: "m", Role: "assistant", Content: &mcp.TextContent{Text: "hi"}}, nil //nolint:staticcheck // clients of all revisions have it
		},
		LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) { //nolint:staticcheck // clients of all revisions have it
			mu.Lock()
			defer mu.Unlock()
			levels = append(levels, string(r.Params.Level))
		},
	})
	c.AddRoots(&mcp.Root{URI: "file:///mine"}) //nolint:staticcheck // clients of all revisions have it
	transport := &mcp.StreamableClientTransport{Endpoint: e.URL + Path, HTTPClient: &http.Client{Transport: authorized(e.Token)}}
	s, err := c.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(levels)
	}
}

func textOf(t *testing.T, res *mcp.CallToolResult, err error) string {
	t.Helper()
	require.NoError(t, err)
	require.Len(t, res.Content, 1)
	return res.Content[0].(*mcp.TextContent).Text
}

func TestQuestionsReachTheClient(t *testing.T) {
	t.Parallel()
	e, _ := serveUpstream(t, newAskingServer(nil), true)
	for _, version := range []string{statelessVersion, "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			const all = "accept accept m file:///mine"
			s, _ := e.connect(t, version)
			res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "up__asks"})
			require.Equal(t, all, textOf(t, res, err))
			prompt, err := s.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "up__asks"})
			require.NoError(t, err)
			require.Equal(t, all, prompt.Description)
			read, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "up://asks"})
			require.NoError(t, err)
			require.Equal(t, all, read.Contents[0].Text)

			res, err = s.CallTool(t.Context(), &mcp.CallToolParams{Name: "up__echo", Meta: mcp.Meta{"own": []any{"x"}, "traceparent": "t"}})
			require.JSONEq(t, `{"traceparent":"t","own":["x"],"progressToken":null}`, textOf(t, res, err))
			_, err = s.CallTool(t.Context(), &mcp.CallToolParams{Name: "up__needs"})
			var needed *jsonrpc.Error
			require.ErrorAs(t, err, &needed)
			require.EqualValues(t, mcp.CodeMissingRequiredClientCapabilities, needed.Code)
			require.JSONEq(t, `{"requiredCapabilities":{"sampling":{}}}`, string(needed.Data))
		})
	}
}

// TestQuestionsOnTheStreamOfTheirCall checks that the questions of an upstream reach a client without a GET stream.
func TestQuestionsOnTheStreamOfTheirCall(t *testing.T) {
	t.Parallel()
	for name, stateless := range map[string]bool{"asks": true, "ask": false} {
		e, _ := serveUpstream(t, newAskingServer(nil), stateless)
		for _, version := range []string{"2025-11-25", "2025-06-18"} {
			t.Run(name+" in "+version, func(t *testing.T) {
				t.Parallel()
				r := e.send(t, http.MethodPost, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+version+`","capabilities":{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}},"clientInfo":{"name":"raw","version":"1"}}}`)
				headers := []string{"Mcp-Session-Id", r.Header.Get("Mcp-Session-Id"), "Mcp-Protocol-Version", version}
				require.Equal(t, http.StatusAccepted, e.send(t, http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, headers...).Status)
				s := stream(t, e.URL, e.Token, http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__`+name+`"}}`, headers...)
				for event := s.event(); event != nil; event = s.event() {
					if event["data"] == "" {
						continue
					}
					var m struct {
						ID, Result json.RawMessage
						Method     string
					}
					require.NoError(t, json.Unmarshal([]byte(event["data"]), &m))
					reply := map[string]string{
						"elicitation/create": `{"action":"accept"}`, "roots/list": `{"roots":[{"uri":"file:///mine"}]}`,
						"sampling/createMessage": `{"model":"m","role":"assistant","content":{"type":"text","text":"hi"}}`,
					}[m.Method]
					if reply == "" {
						require.Contains(t, string(m.Result), "accept")
						return
					}
					require.Equal(t, http.StatusAccepted, e.send(t, http.MethodPost, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, reply), headers...).Status)
				}
				require.Fail(t, "the call has no response")
			})
		}
	}
}

// TestACancelledRequestGetsNoResponse checks the stream of a cancelled call, which cannot be resumed.
func TestACancelledRequestGetsNoResponse(t *testing.T) {
	t.Parallel()
	held := make(chan struct{}, 1)
	e, _ := serveUpstream(t, newAskingServer(held), true)
	session := []string{"Mcp-Session-Id", e.begin(t, `{"elicitation":{}}`), "Mcp-Protocol-Version", "2025-11-25"}
	s := stream(t, e.URL, e.Token, http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__held"}}`, session...)
	require.Equal(t, http.StatusOK, s.resp.StatusCode)
	<-held
	require.Equal(t, http.StatusAccepted, e.send(t, http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, session...).Status)
	last := ""
	for event := s.event(); event != nil; event = s.event() {
		require.Empty(t, event["data"])
		last = event["id"]
	}
	requireRejected(t, e.send(t, http.MethodGet, "", append(session, "Last-Event-ID", last)...), http.StatusBadRequest, "INVALID_HEADER", "cannot be resumed")
}

// TestQuestionsEndWithoutReply checks that a client of a session which does not reply is not waited for forever.
func TestQuestionsEndWithoutReply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := mcp.NewInMemoryTransports()
		server, err := mcp.NewServer(&mcp.Implementation{Name: "comet", Version: "1"}, nil).Connect(t.Context(), ours, nil)
		require.NoError(t, err)
		silent := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, &mcp.ClientOptions{
			ElicitationHandler: func(ctx context.Context, _ *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
		})
		client, err := silent.Connect(t.Context(), theirs, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
		require.NoError(t, err)
		began := time.Now()
		got, err := (&tools.CallOptions{Ask: askSession(t.Context(), server)}).Elicit(t.Context(), &mcp.ElicitParams{Message: "sure?"})
		require.NoError(t, err)
		require.Equal(t, "decline", got.Action)
		require.Equal(t, upstream.AskTimeout, time.Since(began))
		require.NoError(t, client.Close())
		require.NoError(t, server.Wait())
	})
}

// TestQuestionsWhileAnotherCallRuns checks that a question of an older upstream reaches the client of
// the call whose stream has it.
func TestQuestionsWhileAnotherCallRuns(t *testing.T) {
	t.Parallel()
	held := make(chan struct{}, 1)
	e, _ := serveUpstream(t, newAskingServer(held), false)
	other, _ := e.connect(t, statelessVersion)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = other.CallTool(ctx, &mcp.CallToolParams{Name: "up__held"})
	}()
	<-held
	for _, version := range []string{statelessVersion, "2025-11-25"} {
		s, _ := e.connect(t, version)
		res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "up__ask"})
		require.Equal(t, "accept m", textOf(t, res, err), version)
	}
	cancel()
	<-done
}

func TestLogMessagesReachTheClientOfTheCall(t *testing.T) {
	t.Parallel()
	for name, stateless := range map[string]bool{"of an upstream without sessions": true, "of an upstream with sessions": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, _ := serveUpstream(t, newAskingServer(nil), stateless)
			s, levels := e.connect(t, "2025-11-25")
			res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "up__logs"})
			require.Equal(t, "logged", textOf(t, res, err))
			require.Empty(t, levels(), "a client without a level gets none")
			require.NoError(t, s.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "warning"})) //nolint:staticcheck // clients of all revisions have it
			res, err = s.CallTool(t.Context(), &mcp.CallToolParams{Name: "up__logs"})
			require.Equal(t, "logged", textOf(t, res, err))
			require.Eventually(t, func() bool { return len(levels()) == 2 }, soon, 1e6)
			require.Equal(t, []string{"warning", "error"}, levels())

			newest, levels := e.connect(t, statelessVersion)
			res, err = newest.CallTool(t.Context(), &mcp.CallToolParams{Name: "up__logs", Meta: mcp.Meta{mcp.MetaKeyLogLevel: "error"}}) //nolint:staticcheck // clients of all revisions have it
			require.Equal(t, "logged", textOf(t, res, err))
			require.Eventually(t, func() bool { return len(levels()) == 1 }, soon, 1e6)
			require.Equal(t, []string{"error"}, levels())
		})
	}
}

func TestRemovedMethods(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	for _, method := range []string{"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "nope/x"} {
		r := h.send(t, http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+meta+`}}`, "Mcp-Protocol-Version", statelessVersion, "Mcp-Method", method)
		require.Equal(t, http.StatusNotFound, r.Status, method)
		require.Contains(t, r.String(), `"code":-32601`, method)
		require.Contains(t, r.String(), `unknown method \"`+method, method)
	}
}
