// Command a2a-tck runs the technology compatibility kit of A2A against comet.
//
//	a2a-tck COMET KIT PYTHON
//	a2a-tck COMET
//
// Without a kit it calls comet with the client of the SDK for Go, in the versions 1.0 and 0.3. It starts comet, an agent that does what the scenarios of the kit describe, and a proxy through which the kit reaches comet. The
// kit sends no tokens, so the proxy adds one. It also makes the ids of messages unique, which the kit repeats although comet takes
// a repeated id for a repeated message, and names the capability of the agent.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) != 4 && len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: a2a-tck COMET [KIT PYTHON]")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	calls := tour
	if len(os.Args) == 4 {
		calls = func(ctx context.Context, server string) error { return test(ctx, os.Args[3], os.Args[2], server) }
	}
	err := run(ctx, os.Args[1], calls)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "a2a-tck:", err)
		os.Exit(1)
	}
}

// token is the admin token of the server, which only this machine reaches and which lives as long as the kit runs.
const token = "tck-admin-token-0123456789abcdef0123456789"

// run starts a server and calls it through the proxy.
func run(ctx context.Context, comet string, calls func(ctx context.Context, server string) error) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	data, err := os.MkdirTemp("", "a2a-tck")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(data) }()
	server, v5, wait, err := start(ctx, comet, data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, wait()) }()
	worker, err := join(ctx, v5)
	if err != nil {
		return err
	}
	defer func() { _ = worker.conn.Close() }()
	go worker.work()
	proxy, err := serveProxy(ctx, server)
	if err != nil {
		return err
	}
	return calls(ctx, proxy)
}

// addresses are what a server prints when it has started.
var addresses = regexp.MustCompile(`(?s)listens on (\S+).*PROTOCOL_V5\s+(\S+)`)

// start starts a server and returns its addresses. wait stops it.
func start(ctx context.Context, comet, data string) (server, v5 string, wait func() error, err error) {
	cmd := exec.CommandContext(ctx, comet, "serve", "--listen", "127.0.0.1:0", "--v5-listen", "127.0.0.1:0", "--data", data)
	// The receiver of push notifications is on this machine.
	cmd.Env = append(os.Environ(), "COMET_ADMIN_TOKEN="+token, "COMET_TRANSPORT_V5_SELF_REGISTRATION=true", "COMET_LOG_LEVEL=warn", "COMET_WEBHOOKS_ALLOW_NETWORKS=127.0.0.0/8,::1/128")
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", "", nil, err
	}
	wait = func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		return cmd.Wait()
	}
	printed := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		printed += lines.Text() + "\n"
		if m := addresses.FindStringSubmatch(printed); m != nil {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return m[1], m[2], wait, nil
		}
	}
	return "", "", nil, errors.Join(fmt.Errorf("comet did not start: %s", printed), wait())
}

// worker is an agent that speaks PROTOCOL_V5.
type worker struct {
	conn   net.Conn
	in     *bufio.Reader
	name   string
	number int
}

var registered = regexp.MustCompile(`registered;id=(W[0-9.]+);`)

// join registers the agent.
func join(ctx context.Context, address string) (*worker, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	w := &worker{conn: conn, in: bufio.NewReader(conn), name: "W1"}
	w.send("J", "T0", "P0", "-", "S0", "version=V5;name=tck;caps=custom:tck;concurrency=50")
	line, err := w.in.ReadString('\n')
	m := registered.FindStringSubmatch(line)
	if m == nil {
		return nil, errors.Join(fmt.Errorf("the agent was not registered: %s", line), err)
	}
	w.name = m[1]
	return w, nil
}

// send sends a message.
func (w *worker) send(kind, task, priority, state, session, data string) {
	w.number++
	if kind == "J" {
		priority = "-"
	}
	_, _ = fmt.Fprintf(w.conn, "M%d|%s>O1|%s|%s|%s|%s|-|0|%s|-|%s\n", w.number, w.name, kind, task, priority, state, session, data)
}

// scenarios are the results by the beginnings of message ids.
var scenarios = map[string]string{ //nolint:gochecknoglobals // a constant table
	"tck-artifact-text":        "Generated text content",
	"tck-artifact-file-url":    `{"files":[{"name":"output.txt","media_type":"text/plain","url":"https://example.com/output.txt"}]}`,
	"tck-artifact-file":        `{"files":[{"name":"output.txt","media_type":"text/plain","bytes":"dGNr"}]}`,
	"tck-artifact-data":        `{"key": "value", "count": 42}`,
	"tck-message-response":     `{"message":"Direct message response"}`,
	"tck-stream-artifact-file": `{"files":[{"name":"output.txt","media_type":"text/plain","bytes":"dGNr"}]}`,
	"tck-stream-artifact-text": "Streamed text content",
	"tck-stream-ordering-001":  "Ordered output",
	"tck-stream-001":           "Stream hello from TCK",
	"tck-stream-003":           "Stream task lifecycle",
	"":                         "Hello from TCK",
}

var messageID = regexp.MustCompile(`message_id="?([^;"]*)`)

// work does tasks until the connection ends.
func (w *worker) work() {
	for {
		line, err := w.in.ReadString('\n')
		if err != nil {
			return
		}
		m := strings.SplitN(strings.TrimSpace(line), "|", 11)
		if len(m) < 11 {
			continue
		}
		kind, task, priority, session, data := m[2], m[3], m[4], m[8], m[10]
		id := ""
		if found := messageID.FindStringSubmatch(data); found != nil {
			id = found[1]
		}
		switch asks := strings.HasPrefix(id, "tck-input-required") || strings.Contains(data, "TCK history message"); {
		case kind != "R" && kind != "C", strings.HasPrefix(id, "tck-slow"):
		case strings.HasPrefix(id, "tck-reject-task"):
			w.send("E", task, priority, "E", session, "reason=rejected")
		case asks:
			w.send("C", task, priority, "R", session, "question=What next?")
		default:
			longest := ""
			for prefix := range scenarios {
				if strings.HasPrefix(id, prefix) && len(prefix) > len(longest) {
					longest = prefix
				}
			}
			w.send("S", task, priority, "D", session, scenarios[longest])
		}
	}
}

var sentID = regexp.MustCompile(`"messageId"\s*:\s*"(tck-[^"]*)"`)

// serveProxy starts the proxy and returns its address.
func serveProxy(ctx context.Context, server string) (string, error) {
	to, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	var counts atomic.Int64
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // the card has addresses of the proxy
		r.Out.Header.Set("Authorization", "Bearer "+token)
		body, err := io.ReadAll(r.In.Body)
		if err != nil {
			return
		}
		metadata := `,"metadata":{"capability":"tck"}`
		if bytes.Contains(body, []byte(`"metadata"`)) {
			metadata = ""
		}
		body = sentID.ReplaceAllFunc(body, func(found []byte) []byte {
			return []byte(`"messageId":"` + string(sentID.FindSubmatch(found)[1]) + "-" + strconv.FormatInt(counts.Add(1), 10) + `"` + metadata)
		})
		r.Out.Body, r.Out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	srv := &http.Server{Handler: proxy, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	go func() { _ = srv.Serve(l) }()
	return "http://" + l.Addr().String(), nil
}

// test runs the kit. Failed tests of any level fail it.
func test(ctx context.Context, python, kit, server string) error {
	kit, err := filepath.Abs(kit)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, python, "-m", "pytest", "tests/compatibility/", "--sut-host="+server, "--transport=jsonrpc,http_json",
		"--webhook-host=127.0.0.1", "--tb=short", "-q", "-rfx", "-p", "no:cacheprovider", "--ignore", "tests/compatibility/grpc")
	cmd.Dir, cmd.Stdout, cmd.Stderr = kit, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(kit, "stubs")+":"+kit, "PYTHONDONTWRITEBYTECODE=1")
	return cmd.Run()
}
