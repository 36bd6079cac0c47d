package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/sandbox"
)

// upstreamMode is the environment variable that turns the test binary into an upstream; its value
// is the transport.
const upstreamMode = "BENCH_UPSTREAM"

const (
	overStdio = "stdio"
	overHTTP  = "http"
)

// TestMain also runs upstreams and sandbox processes, which have separate heaps.
func TestMain(m *testing.M) {
	code := 0
	switch {
	case len(os.Args) == 2 && os.Args[1] == sandbox.ChildArgument:
		code = sandbox.Child(os.Stdin, os.Stdout)
	case os.Getenv(upstreamMode) == overStdio:
		_ = rawOverStdio(detached(), newUpstream())
	case os.Getenv(upstreamMode) == overHTTP:
		if err := upstreamOverHTTP(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	default:
		code = m.Run()
	}
	os.Exit(code) //nolint:forbidigo // it is main
}

// page is the output of the tool: a small file.
func page() string { return strings.Repeat("One line of a small file of text.\n", 30) }

// newUpstream returns an upstream with one no-op tool.
func newUpstream() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	text := page()
	s.AddTool(&mcp.Tool{
		Name: "read_file", Description: "Read a file", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true},
		InputSchema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`),
	}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
	})
	return s
}

// upstreamOverHTTP prints its address and ends when its input is closed.
func upstreamOverHTTP() error {
	listener, err := (&net.ListenConfig{}).Listen(detached(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: rawOverHTTP(bothRevisions(newUpstream())), ReadHeaderTimeout: time.Minute}
	fmt.Printf("http://%s\n", listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// bothRevisions serves clients with and without sessions.
func bothRevisions(s *mcp.Server) http.Handler {
	of := func(*http.Request) *mcp.Server { return s }
	without := mcp.NewStreamableHTTPHandler(of, &mcp.StreamableHTTPOptions{Stateless: true})
	with := mcp.NewStreamableHTTPHandler(of, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= newRevision {
			without.ServeHTTP(w, r)
			return
		}
		with.ServeHTTP(w, r)
	})
}

// startUpstream starts the HTTP upstream and returns its address.
func startUpstream(b *testing.B) string {
	b.Helper()
	cmd := exec.CommandContext(detached(), os.Args[0])
	cmd.Env, cmd.Stderr = []string{upstreamMode + "=" + overHTTP}, os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	url, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(b, err)
	return strings.TrimSpace(url)
}
