package app_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/testkit/mcptest"
	"comet/internal/wire/genesis"
)

// genesisPeer is an agent or a client that sends signed messages.
type genesisPeer struct {
	f   *protocolFixture
	id  string
	url string
	*client
	key ed25519.PrivateKey
	// acked is called with the ids of messages that the server acknowledges on a WebSocket, unless it is nil.
	acked func(ids []string)
}

// newGenesisPeer returns a peer with a token. The key of an agent is pinned: each of its messages must be signed in whole.
func (f *protocolFixture) newGenesisPeer(t *testing.T, id, token string, isAgent bool) *genesisPeer {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	if isAgent {
		f.must(t, http.StatusCreated, http.MethodPost, "/api/v1/agents/"+id+"/keys", map[string]any{
			"public_key": base64.StdEncoding.EncodeToString(public), "profile": "jcs", "required": true,
		})
	}
	return &genesisPeer{f: f, id: id, url: f.URL, client: newClient(t, f.URL, token), key: private}
}

// serviceKey returns the key that verifies the messages of the server.
func (f *protocolFixture) serviceKey(t *testing.T) ed25519.PublicKey {
	t.Helper()
	keys := get[struct {
		Keys []struct {
			PublicKey string `json:"public_key"`
		}
	}](t, f.client, "/api/v1/service/keys").Keys
	require.NotEmpty(t, keys)
	key, err := genesis.ParsePublicKey(keys[0].PublicKey)
	require.NoError(t, err)
	return key
}

// sign returns a message to comet, or to any agent that offers its intent, as JSON.
func (p *genesisPeer) sign(id, correlationID string, body genesis.Body) ([]byte, error) {
	m := genesis.Message{ID: id, From: p.id, To: "nova", CorrelationID: correlationID, Timestamp: time.Now().UnixNano(), Body: body}
	if err := m.Sign(p.key, genesis.ProfileJCS); err != nil {
		return nil, err
	}
	return m.Format()
}

// request returns a REQUEST.
func (p *genesisPeer) request(id, correlationID, intent string, payload, context any, options genesis.Options) ([]byte, error) {
	text, err := json.Marshal(payload)
	if err != nil {
		return nil, err
	}
	about, err := json.Marshal(context)
	if err != nil {
		return nil, err
	}
	return p.sign(id, correlationID, genesis.Request{
		Intent: intent, Confidence: 1, Entities: []genesis.Entity{}, Payload: text, Context: about, Priority: genesis.Normal, Options: options,
	})
}

// read parses a message of the server and verifies its signature.
func (p *genesisPeer) read(raw []byte) (genesis.Message, error) {
	m, err := genesis.Parse(raw)
	if err == nil {
		_, err = m.Verify(p.f.genesisKey, genesis.JCS)
	}
	if err != nil {
		return m, fmt.Errorf("%w: %w: %s", errInvalidGenesis, err, raw)
	}
	return m, nil
}

// errInvalidGenesis is the error of a message of the server that is malformed or has a wrong signature.
var errInvalidGenesis = errors.New("an invalid message")

// genesisConn carries messages of an agent. next returns the next one and acknowledges it.
type genesisConn struct {
	send  func(raw []byte) error
	next  func() (genesis.Message, error)
	close func()
}

// connect opens a WebSocket.
func (p *genesisPeer) connect() (genesisConn, error) {
	ctx, cancel := context.WithCancel(context.Background())
	conn, resp, err := websocket.Dial(ctx, p.url+"/api/agent/connect?concurrency=8", &websocket.DialOptions{
		Subprotocols: []string{"genesis.v1"}, HTTPHeader: http.Header{"Authorization": {"Bearer " + p.Token}},
	})
	if err != nil {
		cancel()
		return genesisConn{}, err
	}
	if resp.Body != nil {
		_ = resp.Body.Close()
	}
	conn.SetReadLimit(-1)
	send := func(raw []byte) error { return conn.Write(ctx, websocket.MessageText, raw) }
	return genesisConn{send, func() (genesis.Message, error) {
		for {
			_, raw, err := conn.Read(ctx)
			if err != nil {
				return genesis.Message{}, err
			}
			if text := string(raw); strings.HasPrefix(text, `{"hello"`) || strings.HasPrefix(text, `{"ack"`) || strings.HasPrefix(text, `{"bye"`) {
				var frame struct{ Ack []string }
				if err := json.Unmarshal(raw, &frame); err != nil {
					return genesis.Message{}, err
				}
				if p.acked != nil && len(frame.Ack) > 0 {
					p.acked(frame.Ack)
				}
				continue
			}
			m, err := p.read(raw)
			if err == nil {
				err = send(fmt.Appendf(nil, `{"ack":[%q]}`, m.ID))
			}
			return m, err
		}
	}, cancel}, nil
}

// poll returns a connection over requests of the agent.
func (p *genesisPeer) poll() genesisConn {
	ctx, cancel := context.WithCancel(context.Background())
	var waiting []json.RawMessage
	return genesisConn{func(raw []byte) error {
		_, err := p.post(ctx, raw)
		return err
	}, func() (m genesis.Message, err error) {
		for len(waiting) == 0 {
			status, raw, err := p.do(ctx, http.MethodGet, "/api/agent/inbox?wait=20&protocol=genesis&concurrency=8", nil)
			if err != nil {
				return m, err
			}
			var inbox struct{ Messages []json.RawMessage }
			if status != http.StatusOK || json.Unmarshal(raw, &inbox) != nil {
				return m, fmt.Errorf("the inbox has %d: %s", status, raw)
			}
			waiting = inbox.Messages
		}
		if m, err = p.read(waiting[0]); err != nil {
			return m, err
		}
		waiting = waiting[1:]
		_, _, err = p.do(ctx, http.MethodPost, "/api/agent/inbox/ack", map[string]any{"message_ids": []string{m.ID}})
		return m, err
	}, cancel}
}

// genesisReply is a response to a request.
type genesisReply struct {
	status   int
	location string
	body     []byte
}

// post sends a message over HTTP. A status of 400 and above is no error.
func (p *genesisPeer) post(ctx context.Context, raw []byte, header ...string) (genesisReply, error) {
	resp, err := p.Open(ctx, http.MethodPost, "/api/genesis/messages", string(raw), append([]string{"Content-Type", "application/json"}, header...)...)
	if err != nil {
		return genesisReply{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return genesisReply{resp.StatusCode, strings.TrimPrefix(resp.Header.Get("Location"), "/api/v1/tasks/"), body}, err
}

// startGenesisWorker starts a worker that speaks Genesis.
func (f *protocolFixture) startGenesisWorker(t *testing.T, w *protocolWorker, token string) {
	t.Helper()
	peer := f.newGenesisPeer(t, w.id, token, true)
	conn := peer.poll()
	if w.kind == "genesis" {
		var err error
		conn, err = peer.connect()
		require.NoError(t, err)
	}
	requests := map[string]genesis.Message{} // by the id of the task
	var running sync.WaitGroup
	running.Go(func() {
		for {
			m, err := conn.next()
			if err == nil {
				err = w.respondGenesis(peer, m, requests, conn.send)
			}
			if err != nil {
				select {
				case <-w.testEnded:
				default:
					w.stopped <- err.Error()
				}
				return
			}
		}
	})
	t.Cleanup(func() {
		close(w.testEnded)
		conn.close()
		running.Wait()
	})
}

// respondGenesis sends the worker's replies to a message.
func (w *protocolWorker) respondGenesis(p *genesisPeer, m genesis.Message, requests map[string]genesis.Message, send func([]byte) error) error {
	respond := func(to genesis.Message, r genesis.Response) error {
		r.RequestID = to.ID
		raw, err := p.sign(uuid.NewString(), to.CorrelationID, r)
		if err != nil {
			return err
		}
		return send(raw)
	}
	text := func(s string) []byte { b, _ := json.Marshal(s); return b } // a string
	body, isRequest := m.Body.(genesis.Request)
	if !isRequest {
		return fmt.Errorf("a message of type %s: %+v", m.Type, m.Body)
	}
	var in struct {
		Do     string
		N      int
		Answer string
	}
	if err := json.Unmarshal(body.Payload, &in); err != nil {
		return err
	}
	switch {
	case body.Intent == "cancel_task":
		w.stopped <- w.id
		return nil
	case body.Intent == "clarify":
		return respond(requests[m.CorrelationID], genesis.Response{Status: genesis.Succeeded, Data: text("in " + in.Answer)})
	}
	var about struct{ Traceparent string }
	if err := json.Unmarshal(body.Context, &about); err != nil {
		return err
	}
	w.addTrace(about.Traceparent)
	switch in.Do {
	case "ok":
		return respond(m, genesis.Response{Status: genesis.Succeeded, Data: text(fmt.Sprint("n is ", in.N)), Usage: &genesis.Usage{Tokens: 30}})
	case "parts":
		if err := respond(m, genesis.Response{Status: genesis.Partial, Data: text("one ")}); err != nil {
			return err
		}
		w.waitAfterPart()
		return respond(m, genesis.Response{Status: genesis.Succeeded, Data: text("one two")})
	case "hang":
		w.started <- w.id
		return nil
	case "ask":
		requests[m.CorrelationID] = m
		raw, err := p.request(uuid.NewString(), "", "clarify", map[string]any{"taskId": m.CorrelationID, "question": "which format?", "options": []string{"json", "txt"}}, map[string]any{}, genesis.Options{})
		if err != nil {
			return err
		}
		return send(raw)
	}
	return respond(m, genesis.Response{Status: genesis.Failed, Error: &genesis.ErrorDetails{Code: "NO_LUCK", Message: "no luck"}})
}

// startMCPWorker starts an MCP server and adds it as an upstream. Its tool is the worker's capability.
func (f *protocolFixture) startMCPWorker(t *testing.T, w *protocolWorker) {
	t.Helper()
	up := w.id // the agent of the upstream has an id of its own
	server := mcptest.New(t, up)
	t.Cleanup(func() { close(w.testEnded) }) // before the server stops
	server.Tool(&mcp.Tool{Name: "work"}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var in struct {
			Do string
			N  int
		}
		if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
			return nil, err
		}
		switch in.Do {
		case "ok":
			return mcptest.Texts(fmt.Sprint("n is ", in.N)), nil
		case "parts": // the protocol has progress, but no parts of a result
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1, Total: 2, Message: "one "}); err != nil {
				return nil, err
			}
			w.waitAfterPart()
			return mcptest.Texts("one two"), nil
		case "hang":
			w.started <- w.id
			select {
			case <-ctx.Done():
				w.stopped <- w.id
			case <-w.testEnded:
			}
			return nil, ctx.Err()
		case "ask": // comet declines, because a task has no form
			if a, ok := r.Params.InputResponses["q"].(*mcp.ElicitResult); ok {
				return mcptest.Texts("in " + a.Action), nil
			}
			return &mcp.CallToolResult{RequestState: "mine", InputRequests: mcp.InputRequestMap{"q": &mcp.ElicitParams{
				Mode: "form", Message: "which format?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"format":{"type":"string"}}}`),
			}}}, nil
		}
		res := mcptest.Texts("no luck")
		res.IsError = true
		return res, nil
	})
	f.must(t, http.StatusCreated, http.MethodPut, "/api/v1/upstreams/"+up, map[string]any{"url": server.URL})
	w.capability = up + ":work"
	w.id = get[struct {
		AgentID string `json:"agent_id"`
	}](t, f.client, "/api/v1/upstreams/"+up).AgentID
	eventually(t, func() bool {
		return f.status(t, "/api/v1/agents/"+w.id) == http.StatusOK && len(get[agent](t, f.client, "/api/v1/agents/"+w.id).Capabilities) == 1
	}, "its tool is its capability")
	f.must(t, http.StatusOK, http.MethodPatch, "/api/v1/agents/"+w.id, map[string]any{"token_budget": 5000, "type": "infra"})
}

// a2aWorker is a remote agent that speaks A2A 1.0 over JSON-RPC with streams.
type a2aWorker struct {
	*protocolWorker
	server *httptest.Server

	mu       sync.Mutex
	statuses map[string]string // of its tasks
	canceled map[string]chan struct{}
}

// startA2AWorker starts a remote agent, which executes the tasks of the worker's agent.
func (f *protocolFixture) startA2AWorker(t *testing.T, w *protocolWorker) {
	t.Helper()
	a := &a2aWorker{protocolWorker: w, statuses: map[string]string{}, canceled: map[string]chan struct{}{}}
	a.server = httptest.NewServer(http.HandlerFunc(a.serve))
	t.Cleanup(func() {
		close(w.testEnded)
		a.server.CloseClientConnections()
		a.server.Close()
	})
	f.must(t, http.StatusCreated, http.MethodPut, "/api/v1/agents/"+w.id+"/a2a", map[string]any{"card_url": a.server.URL + "/card.json"})
}

func (a *a2aWorker) serve(out http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		_, _ = fmt.Fprintf(out, `{"name":"Remote","description":"d","version":"1","capabilities":{"streaming":true},"skills":[],
			"supportedInterfaces":[{"url":"%s/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`, a.server.URL)
		return
	}
	var in struct {
		Method string
		Params struct {
			ID      string
			Message struct {
				MessageID, TaskID string
				Parts             []struct {
					Text string
					Data struct {
						Do string
						N  int
					}
				}
			}
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		a.stopped <- err.Error()
		return
	}
	id := in.Params.ID
	switch in.Method {
	case "CancelTask":
		a.mu.Lock()
		if c := a.canceled[id]; c != nil {
			close(c)
			delete(a.canceled, id)
			a.stopped <- a.id
		}
		a.mu.Unlock()
		a.setStatus(id, `{"state":"TASK_STATE_CANCELED"}`)
		fallthrough
	case "GetTask":
		_, _ = fmt.Fprintf(out, `{"jsonrpc":"2.0","id":1,"result":%s}`, a.task(id))
		return
	case "SendStreamingMessage":
	default:
		a.stopped <- "the remote agent is called with " + in.Method
		return
	}
	send := func(event string) {
		_, _ = fmt.Fprintf(out, "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":%s}\n\n", event)
		_ = http.NewResponseController(out).Flush()
	}
	out.Header().Set("Content-Type", "text/event-stream")
	m := in.Params.Message
	if id = m.TaskID; id == "" {
		id = "r-" + m.MessageID
		a.addTrace(r.Header.Get("Traceparent"))
	}
	a.setStatus(id, `{"state":"TASK_STATE_WORKING"}`)
	send(`{"task":` + a.task(id) + `}`)
	part := func(text, rest string) {
		send(`{"artifactUpdate":{"taskId":"` + id + `","contextId":"c-` + id + `","artifact":{"artifactId":"a","parts":[{"text":"` + text + `"}],"metadata":{"usage":{"tokens":30}}},` + rest + `}}`)
	}
	end := func(status string) {
		a.setStatus(id, status)
		send(`{"statusUpdate":{"taskId":"` + id + `","contextId":"c-` + id + `","status":` + status + `}}`)
	}
	const completed = `{"state":"TASK_STATE_COMPLETED"}`
	if m.TaskID != "" {
		part("in "+m.Parts[0].Text, `"lastChunk":true`)
		end(completed)
		return
	}
	switch do := m.Parts[0].Data; do.Do {
	case "ok":
		part(fmt.Sprint("n is ", do.N), `"lastChunk":true`)
		end(completed)
	case "parts":
		part("one ", `"lastChunk":false`)
		a.waitAfterPart()
		part("two", `"append":true,"lastChunk":true`)
		end(completed)
	case "hang":
		canceled := make(chan struct{})
		a.mu.Lock()
		a.canceled[id] = canceled
		a.mu.Unlock()
		a.started <- a.id
		select {
		case <-canceled:
		case <-r.Context().Done():
		case <-a.testEnded:
		}
	case "ask":
		end(`{"state":"TASK_STATE_INPUT_REQUIRED","message":{"messageId":"q","role":"ROLE_AGENT","parts":[{"text":"which format?"}],"metadata":{"options":["json","txt"]}}}`)
	default:
		end(`{"state":"TASK_STATE_FAILED","message":{"messageId":"e","role":"ROLE_AGENT","parts":[{"text":"no luck"}]}}`)
	}
}

func (a *a2aWorker) setStatus(id, status string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.statuses[id] = status
}

// task returns a task without its artifacts.
func (a *a2aWorker) task(id string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return `{"id":"` + id + `","contextId":"c-` + id + `","status":` + a.statuses[id] + `}`
}
