package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/input"
)

// The callers and the upstreams of BenchmarkToolCall do no more than the protocol requires, so that
// the measured time is that of the gateway.

// rawCaller calls the tool with prepared requests over one connection.
type rawCaller struct {
	client *http.Client
	url    string
	head   http.Header
	params string
	last   atomic.Int64 // id of a request
}

// newRawCaller returns a caller in a protocol version; it starts a session in the older one.
func newRawCaller(b *testing.B, url, token, revision, tool string) *rawCaller {
	b.Helper()
	base := &http.Transport{MaxIdleConnsPerHost: 1}
	b.Cleanup(base.CloseIdleConnections)
	c := &rawCaller{client: &http.Client{Transport: base}, url: url, head: http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Authorization": {"Bearer " + token},
	}}
	c.head.Set("Mcp-Protocol-Version", revision)
	params := `"name":"` + tool + `","arguments":{"path":"/srv/data/reports/2026/november.txt"}`
	if revision == newRevision {
		c.head.Set("Mcp-Method", "tools/call")
		c.head.Set("Mcp-Name", tool)
		params += `,"_meta":{"io.modelcontextprotocol/protocolVersion":"` + newRevision +
			`","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
	} else {
		w := &toolServer{url: url}
		c.head.Set("Mcp-Session-Id", w.session(b, &http.Client{Transport: bearerTransport{token, base}}, http.MethodPost, ""))
	}
	c.params = params
	return c
}

// call calls the tool and checks the response.
func (c *rawCaller) call() error {
	body := `{"jsonrpc":"2.0","id":` + strconv.FormatInt(c.last.Add(1), 10) + `,"method":"tools/call","params":{` + c.params + `}}`
	req, err := http.NewRequestWithContext(detached(), http.MethodPost, c.url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = c.head
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err == nil && (resp.StatusCode != http.StatusOK || len(text) < len(page())) {
		err = fmt.Errorf("%s returns %d %s", c.url, resp.StatusCode, text)
	}
	return err
}

func rawCallers(b *testing.B, url, token, revision, tool string) []*rawCaller {
	b.Helper()
	all := make([]*rawCaller, toolCallers)
	for i := range all {
		all[i] = newRawCaller(b, url, token, revision, tool)
	}
	return all
}

// rawReply returns the response to a call, nil for another message.
func rawReply(message, result []byte) []byte {
	var id []byte
	call := false
	input.EachMember(message, func(name string, value []byte) bool {
		switch name {
		case "id":
			id = value
		case "method":
			call = string(value) == `"tools/call"`
		}
		return true
	})
	if !call {
		return nil
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

func rawResult() []byte {
	text, _ := json.Marshal(page())
	return fmt.Appendf(nil, `{"content":[{"type":"text","text":%s}]}`, text)
}

// rawOverHTTP answers calls, and leaves other messages to the SDK.
func rawOverHTTP(next http.Handler) http.Handler {
	result := rawResult()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if reply := rawReply(body, result); reply != nil {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(reply)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// rawOverStdio answers calls, and leaves other messages to the SDK.
func rawOverStdio(ctx context.Context, s *mcp.Server) error {
	result := rawResult()
	in, others := io.Pipe()
	out := &lockedWriter{w: os.Stdout}
	go func() {
		lines := bufio.NewReaderSize(os.Stdin, 64<<10)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				_ = others.Close()
				return
			}
			if reply := rawReply(line, result); reply != nil {
				_, _ = out.Write(append(reply, '\n'))
				continue
			}
			_, _ = others.Write(line)
		}
	}()
	return s.Run(ctx, &mcp.IOTransport{Reader: in, Writer: out})
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func (l *lockedWriter) Close() error { return nil }

// thinRelay starts a server that reads a message once, compares a token, forwards the parameters and
// copies the result, and returns its address: what any gateway must do.
func thinRelay(b *testing.B, to, token string) string {
	b.Helper()
	base := &http.Transport{MaxIdleConnsPerHost: 64}
	b.Cleanup(base.CloseIdleConnections)
	client := &http.Client{Transport: base}
	return "http://" + serve(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+token)) != 1 {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		body, _ := io.ReadAll(r.Body)
		parts := map[string][]byte{}
		input.EachMember(body, func(name string, value []byte) bool { parts[name] = value; return true })
		req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, to, bytes.NewReader(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":%s}`, parts["params"])))
		if err != nil {
			return
		}
		req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
		resp, err := client.Do(req)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		result := map[string][]byte{}
		input.EachMember(text, func(name string, value []byte) bool { result[name] = value; return true })
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, parts["id"], result["result"]))
	}))
}
