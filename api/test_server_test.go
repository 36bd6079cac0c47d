package api

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/internal/input"
	"comet/internal/registry"
	"comet/internal/telemetry"
	"comet/models"
)

// maxBody is the size limit of bodies in the chain of a test.
const maxBody = 1 << 20

// testServerOptions are what the chain of a test may change.
type testServerOptions struct {
	timeout  time.Duration
	logEvery int
	routes   func(p *responder, r chi.Router)
}

// newTestHandler is the chain with a few routes that use each convention.
func newTestHandler(log *slog.Logger, opts testServerOptions) http.Handler {
	p := newResponder(log)
	r := chi.NewRouter()
	r.Use(
		httpkit.RequestIDs,
		httpkit.AccessLog(log, opts.logEvery),
		p.recoverPanics,
		securityHeaders,
		compress(),
		timeout(opts.timeout, func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/stream") }),
		middleware.GetHead,
	)
	notFound, methodNotAllowed := p.fallbacks(r)
	r.NotFound(notFound)
	r.MethodNotAllowed(methodNotAllowed)
	r.Get("/problems/{code}", p.handle(p.getProblemType))
	things := thingHandlers{p}
	r.Get("/things", p.handle(things.list))
	r.Post("/things", p.handle(things.create))
	r.Get("/things/{id}", p.handle(things.get))
	r.Patch("/things/{id}", p.handle(things.patch))
	r.Delete("/things/{id}", p.handle(things.remove))
	if opts.routes != nil {
		opts.routes(p, r)
	}
	return r
}

// thing is a resource at version 3, as large as its id asks for.
type thing struct {
	ID  string `json:"id"`
	Pad string `json:"pad,omitempty"`
}

type thingHandlers struct{ *responder }

func newThing(id string) thing {
	th := thing{ID: id}
	if strings.HasPrefix(id, "large") {
		th.Pad = strings.Repeat("abcdefgh ", 500)
	}
	return th
}

func (h thingHandlers) list(w http.ResponseWriter, r *http.Request) error {
	return h.writeJSON(w, r, map[string]any{"b": 1, "a": []int{}, "c": "<>&"})
}

func (h thingHandlers) get(w http.ResponseWriter, r *http.Request) error {
	return h.writeEntity(w, r, http.StatusOK, 3, newThing(chi.URLParam(r, "id")))
}

func (h thingHandlers) create(w http.ResponseWriter, r *http.Request) error {
	var draft models.AgentDraft
	body, err := decodeThing(w, r, &draft)
	if err != nil {
		return err
	}
	return h.writeEntity(w, r, http.StatusCreated, 1, map[string]any{"bytes": len(body)})
}

func decodeThing(w http.ResponseWriter, r *http.Request, v any) ([]byte, error) {
	accepted := []string{contentTypeJSON}
	if r.Method == http.MethodPatch {
		accepted = append(accepted, contentTypeMergePatch)
	}
	body, _, err := httpkit.ReadBody(w, r, httpkit.BodyRules{Limit: maxBody, MediaTypes: accepted})
	if err != nil {
		return nil, err
	}
	if err := input.DecodeJSON(body, v); err != nil {
		return nil, err
	}
	return body, input.Validate(v).Err()
}

func (h thingHandlers) patch(w http.ResponseWriter, r *http.Request) error {
	pre, err := precondition(r)
	if err != nil {
		return err
	}
	var patch registry.AgentPatch
	if _, err := decodeThing(w, r, &patch); err != nil {
		return err
	}
	if pre != nil {
		if err := pre(3); err != nil {
			return err
		}
	}
	return h.writeEntity(w, r, http.StatusOK, 4, newThing(chi.URLParam(r, "id")))
}

func (h thingHandlers) remove(w http.ResponseWriter, r *http.Request) error {
	pre, err := precondition(r)
	if err != nil {
		return err
	}
	if pre != nil {
		if err := pre(3); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// logBuffer collects what is logged.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logBuffer) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// lines returns the records with this message.
func (l *logBuffer) lines(t *testing.T, message string) []map[string]any {
	t.Helper()
	var found []map[string]any
	for line := range strings.Lines(l.text()) {
		var record map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &record))
		if record["msg"] == message {
			found = append(found, record)
		}
	}
	return found
}

func newLog(t *testing.T) (*slog.Logger, *logBuffer) {
	t.Helper()
	buf := &logBuffer{}
	log, err := telemetry.NewLogger(buf, &telemetry.LogOptions{Format: "json", Level: "debug"})
	require.NoError(t, err)
	return log, buf
}

// testServer is a server with the chain of newHandler.
type testServer struct {
	t   *testing.T
	url string
	log *logBuffer
}

func newTestServer(t *testing.T, opts testServerOptions) *testServer {
	t.Helper()
	log, buf := newLog(t)
	server := httptest.NewUnstartedServer(newTestHandler(log, opts))
	server.Config.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	server.Start()
	t.Cleanup(server.Close)
	return &testServer{t, server.URL, buf}
}

// testResponse is a response with its body read, exactly as it was sent.
type testResponse struct {
	*http.Response
	body string
}

// do sends a request; headers are name, value, name, value.
func (d *testServer) do(method, path, body string, headers ...string) testResponse {
	d.t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.url+path, reader)
	require.NoError(d.t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] == "" {
			req.Header.Del(headers[i])
		} else {
			req.Header.Add(headers[i], headers[i+1])
		}
	}
	if req.Header.Get("Content-Type") == "" {
		req.Header.Del("Content-Type")
	}
	return d.send(req)
}

func (d *testServer) send(req *http.Request) testResponse {
	d.t.Helper()
	transport := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
	res, err := transport.RoundTrip(req)
	require.NoError(d.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(d.t, err)
	return testResponse{res, string(text)}
}

// plain returns the answer decompressed.
func (a testResponse) plain(t *testing.T) testResponse {
	t.Helper()
	require.Equal(t, "gzip", a.Header.Get("Content-Encoding"))
	reader, err := gzip.NewReader(strings.NewReader(a.body))
	require.NoError(t, err)
	text, err := io.ReadAll(reader)
	require.NoError(t, err)
	return testResponse{a.Response, string(text)}
}

// problem checks that the answer is a problem document and returns it.
func (a testResponse) problem(t *testing.T, status int, code errs.Code) Problem {
	t.Helper()
	require.Equal(t, status, a.StatusCode, a.body)
	require.Equal(t, "application/problem+json", a.Header.Get("Content-Type"))
	require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
	require.Empty(t, a.Header.Get("ETag"))
	var doc Problem
	require.NoError(t, json.Unmarshal([]byte(a.body), &doc), a.body)
	require.Equal(t, code, doc.Code, a.body)
	require.Equal(t, status, doc.Status)
	require.Equal(t, "/problems/"+string(code), doc.Type)
	require.Equal(t, code.Title(), doc.Title)
	require.Equal(t, a.Header.Get("X-Request-Id"), doc.RequestID)
	return doc
}

// requireField checks that a problem names one place and rule.
func requireField(t *testing.T, doc Problem, want errs.Field) {
	t.Helper()
	require.NotEmpty(t, doc.Errors, "%+v", doc)
	got := doc.Errors[0]
	require.Equal(t, []string{want.Pointer, want.Parameter, want.Header, want.Rule},
		[]string{got.Pointer, got.Parameter, got.Header, got.Rule})
	require.Contains(t, got.Detail, want.Detail)
}
