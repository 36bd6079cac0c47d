package app_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/app"
	v5 "comet/internal/wire/v5"
	"comet/store/storetest"
)

// TestThousandV5Workers: a thousand workers enroll over TCP, and each task is done once by one of
// them.
func TestThousandV5Workers(t *testing.T) {
	t.Parallel()
	const workers, requests, clients = 1000, 1500, 16
	for _, name := range storetest.Databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := configured(t, name)
			cfg.Transport.V5Listen, cfg.Transport.V5SelfRegistration, cfg.Log.Level = "127.0.0.1:0", true, "warn"
			a, err := app.New(t.Context(), cfg, nil)
			require.NoError(t, err)
			require.NoError(t, a.Start(t.Context()))
			t.Cleanup(func() { require.NoError(t, a.Stop(context.Background())) })
			c := newClient(t, a.URL(), adminToken(t, cfg.Data))

			var done, busy atomic.Int64
			var running sync.WaitGroup
			t.Cleanup(running.Wait)
			ctx, end := context.WithCancel(context.Background())
			t.Cleanup(end)
			joining := make(chan int, workers)
			for n := range workers {
				joining <- n
			}
			close(joining)
			var joiners sync.WaitGroup
			for range clients {
				joiners.Go(func() {
					for n := range joining {
						conn, in := joinDigger(ctx, t, a.V5Addr(), n)
						running.Go(func() {
							if serveDigger(conn, in) {
								busy.Add(1)
							}
						})
					}
				})
			}
			joiners.Wait()
			var submitting sync.WaitGroup
			for n := range clients {
				submitting.Go(func() {
					for i := n; i < requests; i += clients {
						status, body, err := c.do(t.Context(), http.MethodPost, "/api/v1/tasks",
							map[string]any{"capabilities": []string{"custom:dig"}, "parameters": map[string]any{"n": i}}, "Prefer", "wait=60")
						if err != nil || status != http.StatusOK || !strings.Contains(string(body), fmt.Sprintf(`"text":"hole %d"`, i)) {
							t.Errorf("%d %v %s", status, err, body)
							return
						}
						done.Add(1)
					}
				})
			}
			submitting.Wait()
			require.EqualValues(t, requests, done.Load())
			end()
			running.Wait()
			require.Greater(t, busy.Load(), int64(workers/4), "the tasks are spread over the workers")
		})
	}
}

// joinDigger opens the connection of a worker and joins.
func joinDigger(ctx context.Context, t *testing.T, addr string, n int) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		t.Error(err)
		return nil, nil
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "M1|W1>O1|J|T0|-|-|-|0|S0|-|name=digger-%d;caps=custom:dig\n", n)
	in := bufio.NewReader(conn)
	if err == nil {
		_, err = in.ReadString('\n')
	}
	if err != nil {
		t.Error(err)
	}
	return conn, in
}

// serveDigger does tasks until the connection ends, and reports whether it received any.
func serveDigger(conn net.Conn, in *bufio.Reader) (received bool) {
	for conn != nil {
		line, err := in.ReadString('\n')
		if err != nil {
			return received
		}
		m, err := v5.Parse(line)
		if err != nil || m.Type != v5.Request {
			continue
		}
		received = true
		n, _ := m.Data.Get("n")
		reply, err := v5.Message{
			Number: 2, From: m.To, To: m.From, Type: v5.Success, Task: m.Task, State: v5.Done, Context: m.Context, Data: v5.Data("hole " + n),
		}.Format()

		if err == nil {
			_, err = conn.Write([]byte(reply + "\n"))
		}
		if err != nil {
			return received
		}
	}
	return received
}
