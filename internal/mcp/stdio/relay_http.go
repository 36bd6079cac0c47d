package stdio

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"comet/internal/input"
)

// streamRetryDelay is the delay before the stream of a session is opened again.
const streamRetryDelay = time.Second

// send sends a message and writes the responses, or an error to a request that gets none.
func (r *relay) send(ctx context.Context, m *message) {
	sent := r.current().id
	answered, status, err := r.post(ctx, m, r.writeMessage)
	if status == http.StatusNotFound && sent != "" && !m.isStateless() {
		if err = r.reinitialize(sent); err == nil {
			answered, _, err = r.post(ctx, m, r.writeMessage)
		}
	}
	if answered || ctx.Err() != nil {
		return
	}
	if err == nil {
		err = errors.New("its response is incomplete")
	}
	r.reportFailure(m, err)
}

// reportFailure reports that a message did not reach the server or got no response.
func (r *relay) reportFailure(m *message, err error) {
	if !m.isRequest() {
		r.log.Warn("a message did not reach the server", "method", m.Method, "error", err)
		return
	}
	r.writeError(m.ID, &jsonrpc.Error{
		Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf("the comet server at %s did not respond: %v", r.url, err),
	})
}

func (r *relay) current() relaySession {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.session
}

func (m *message) isStateless() bool { return m.Params.Meta.Revision >= StatelessVersion }

// request returns a message as an HTTP request (MCP, Streamable HTTP).
func (r *relay) request(ctx context.Context, method string, m *message, s relaySession) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.url, bytes.NewReader(m.raw))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	revision := cmp.Or(m.Params.Meta.Revision, s.revision)
	if revision != "" && m.Method != "initialize" {
		req.Header.Set("Mcp-Protocol-Version", revision)
	}
	switch {
	case revision >= StatelessVersion:
		req.Header.Set("Mcp-Method", m.Method)
		switch m.Method {
		case "tools/call", "prompts/get":
			req.Header.Set("Mcp-Name", m.Params.Name)
		case "resources/read":
			req.Header.Set("Mcp-Name", m.Params.URI)
		case "tasks/get", "tasks/update", "tasks/cancel":
			req.Header.Set("Mcp-Name", m.Params.TaskID)
		}
	case s.id != "" && m.Method != "initialize":
		req.Header.Set("Mcp-Session-Id", s.id)
	}
	return req, nil
}

// post sends a message and passes the responses to write. answered reports whether the response to
// the message is among them; a status above 399 without a JSON-RPC message is an error. An initialize
// whose stream ends without the response is repeated once; the server ends a session that is not used.
func (r *relay) post(ctx context.Context, m *message, write func([]byte)) (answered bool, status int, err error) {
	answered, status, err = r.postOnce(ctx, m, write)
	if !answered && err == nil && m.Method == "initialize" && ctx.Err() == nil {
		return r.postOnce(ctx, m, write)
	}
	return answered, status, err
}

func (r *relay) postOnce(ctx context.Context, m *message, write func([]byte)) (answered bool, status int, err error) {
	req, err := r.request(ctx, http.MethodPost, m, r.current())
	if err != nil {
		return false, 0, err
	}
	res, err := r.http.Do(req)
	if err != nil {
		return false, 0, err
	}
	defer func() { _ = res.Body.Close() }()
	var refusal []byte
	for msg := range responseMessages(res) {
		reply := parseResponse(msg)
		if res.StatusCode == http.StatusNotFound && reply.isError() && !m.isStateless() {
			break // the session is not known any more
		}
		isResponse := reply.Method == "" && (m.raw[0] == '[' || bytes.Equal(reply.ID, m.ID))
		if res.StatusCode >= http.StatusMultipleChoices && !isResponse {
			refusal = bytes.Clone(msg) // an error without the id of the request
			continue
		}
		if isResponse && m.Method == "initialize" && !reply.isError() {
			r.beginSession(res.Header.Get("Mcp-Session-Id"), reply.Result.ProtocolVersion)
		}
		answered = answered || isResponse
		write(msg)
	}
	if !answered && res.StatusCode >= http.StatusMultipleChoices {
		err = responseError(res, refusal)
	}
	return answered || !m.isRequest() && err == nil, res.StatusCode, err
}

// responseError returns why the server rejected a message; refusal is its error, nil for none.
func responseError(res *http.Response, refusal []byte) error {
	var said struct{ Error struct{ Message string } }
	_ = json.Unmarshal(refusal, &said) // "" without an error
	switch {
	case res.StatusCode == http.StatusUnauthorized:
		return errors.New("it rejects the token (--token or COMET_TOKEN)")
	case said.Error.Message != "":
		return fmt.Errorf("it responds %s: %s", res.Status, said.Error.Message)
	case res.StatusCode == http.StatusForbidden:
		return errors.New("the token needs the scope tools:call")
	}
	rest, _ := io.ReadAll(io.LimitReader(res.Body, 2000))
	var problem struct{ Detail string }
	if json.Unmarshal(rest, &problem) == nil && problem.Detail != "" {
		return fmt.Errorf("it responds %s: %s", res.Status, problem.Detail)
	}
	if text := strings.TrimSpace(string(rest)); text != "" && !json.Valid(rest) {
		return fmt.Errorf("it responds %s: %s", res.Status, text)
	}
	return fmt.Errorf("it responds %s", res.Status)
}

// beginSession stores the session that the response to initialize began and opens its stream.
// If revision is "", the server rejects the next requests.
func (r *relay) beginSession(id, revision string) {
	r.mu.Lock()
	r.session.id, r.session.revision = id, revision
	r.mu.Unlock()
	if id != "" {
		r.running.Go(func() { r.readStreams(r.life, id) })
	}
}

// reinitialize replaces a session that the server does not know any more. All calls use the new
// session, so the end of one call does not cancel it.
func (r *relay) reinitialize(forgotten string) error {
	r.initializing.Lock()
	defer r.initializing.Unlock()
	ctx, cancel := context.WithTimeout(r.life, sendTimeout)
	defer cancel()
	s := r.current()
	if s.id != forgotten { // another call has done it already
		return nil
	}
	if s.opener == nil {
		return errors.New("the session is unknown")
	}
	r.log.Info("the server does not know the session; initializing a new one")
	var answer []byte
	answered, _, err := r.post(ctx, s.opener, func(msg []byte) { answer = bytes.Clone(msg) })
	switch {
	case err != nil:
		return err
	case !answered, parseResponse(answer).isError():
		return fmt.Errorf("it does not initialize a new session: %s", answer)
	}
	if s.opened != nil {
		if _, _, err := r.post(ctx, s.opened, r.writeMessage); err != nil {
			return err
		}
	}
	for _, list := range []string{"tools", "prompts", "resources"} { // the lists may differ
		r.writeMessage([]byte(`{"jsonrpc":"2.0","method":"notifications/` + list + `/list_changed"}`))
	}
	return nil
}

// readStreams reads the streams of a session until the session ends.
func (r *relay) readStreams(ctx context.Context, id string) {
	again := time.NewTicker(streamRetryDelay)
	defer again.Stop()
	for r.current().id == id && r.readStream(ctx) {
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// readStream reads one stream to its end and reports whether to open another one.
func (r *relay) readStream(ctx context.Context) bool {
	s := r.current()
	req, err := r.request(ctx, http.MethodGet, &message{}, s)
	if err != nil {
		return false
	}
	res, err := r.http.Do(req)
	if err != nil {
		return ctx.Err() == nil
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode == http.StatusNotFound {
		return r.reinitialize(s.id) != nil // the new session opens its own stream
	}
	if res.StatusCode != http.StatusOK {
		return res.StatusCode >= http.StatusInternalServerError
	}
	for msg := range responseMessages(res) {
		r.writeMessage(msg)
	}
	return ctx.Err() == nil
}

func (r *relay) closeSession() {
	s := r.current()
	if s.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.life), time.Second)
	defer cancel()
	req, err := r.request(ctx, http.MethodDelete, &message{}, s)
	if err != nil {
		return
	}
	if res, err := r.http.Do(req); err == nil {
		_ = res.Body.Close()
	}
}

// response is a message of a server, with the members that a transport needs. A batch has none.
type response struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"` // of a request or notification
	Error  json.RawMessage `json:"error"`
	Result struct {
		ProtocolVersion string `json:"protocolVersion"`
	} `json:"result"`
}

// parseResponse reads a message of a server, which is JSON.
func parseResponse(msg []byte) (m response) {
	_ = json.Unmarshal(msg, &m) // members of another type are left out
	return m
}

func (m response) isError() bool { return len(m.Error) > 0 }

// responseMessages yields the messages of an HTTP response: one message or a stream.
func responseMessages(res *http.Response) iter.Seq[[]byte] {
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch kind {
	case "text/event-stream":
		return func(yield func([]byte) bool) {
			events := input.NewEventReader(res.Body, maxEvent)
			for e, err := events.Next(); err == nil; e, err = events.Next() {
				if len(e.Data) > 0 && !yield(e.Data) {
					return
				}
			}
		}
	case "application/json":
		return func(yield func([]byte) bool) {
			var all []byte
			all, err := io.ReadAll(io.LimitReader(res.Body, maxEvent))
			if err == nil && bytes.Contains(all, []byte(`"jsonrpc"`)) && json.Valid(all) {
				yield(all)
			}
		}
	}
	return func(func([]byte) bool) {}
}

// maxEvent is the size limit of an event, in bytes.
const maxEvent = 16 << 20
