package bench

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/models"
)

const (
	idleAgents = 10_000 // agents with an idle connection
	starts     = 9      // of which the median is the time of a start
	// settleTime is how long the program rests before its memory is read. It returns unused memory to
	// the operating system, and pings connections, several times in between.
	settleTime = 40 * time.Second
)

// BenchmarkFootprint measures the real program: the size of its stripped binary, the time of its
// start, its resident memory without and with 100,000 agents, and what each of 10,000 idle
// WebSockets adds. It measures once, however many rounds are requested, and needs /proc (Linux) and
// about 10,050 open files in each process.
func BenchmarkFootprint(b *testing.B) {
	path := buildProgram(b)
	info, err := os.Stat(path)
	require.NoError(b, err)
	figures := []figure{{what: "binary, stripped", value: float64(info.Size()) / 1e6, unit: "MB", most: 60}}
	figures = append(figures, startTimes(b, path)...)
	data, secrets := populatedStorage(b)
	p := runProgram(b, path, data)
	awaitReady(b, p.addr)
	figures = append(figures, figure{what: "start to ready, 100,000 agents", value: p.ready.Seconds() * 1e3, unit: "ms"})
	rest := settled(b, p.pid)
	figures = append(figures,
		figure{what: "resident, 100,000 agents", value: rest.resident, unit: "MB", most: 120},
		figure{what: "... of it private", value: rest.private, unit: "MB"},
	)
	conns := make([]*websocket.Conn, idleAgents)
	together(b, 32, idleAgents, func(n int) (err error) {
		conns[n], err = connectIdle(p.addr, secrets[n])
		return err
	})
	held := settled(b, p.pid)
	for _, c := range conns {
		require.NoError(b, c.Ping(detached()), "the server has closed an idle connection")
		_ = c.CloseNow()
	}
	figures = append(figures,
		figure{what: "resident, and 10,000 idle WebSockets", value: held.resident, unit: "MB"},
		figure{what: "each idle WebSocket, private memory", value: (held.private - rest.private) * 1024 / idleAgents, unit: "KB", most: 20},
	)
	for b.Loop() { // measured once
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(info.Size())/1e6, "MB_binary")
	b.ReportMetric(rest.resident, "MB_100k_agents")
	b.ReportMetric((held.private-rest.private)*1024/idleAgents, "KB_a_websocket")
	printFigures(os.Stdout, "The program in a separate process, SQLite.", figures)
}

// startTimes measures the time from the start of the process to its first output, which has the
// address, in a new and in an existing folder, and the memory of the last one.
func startTimes(b *testing.B, path string) []figure {
	b.Helper()
	took := [2][]float64{}
	var rest memory
	for n := range starts {
		data := emptyStorage(b, sqlite)
		for again := range took {
			p := runProgram(b, path, data)
			took[again] = append(took[again], p.ready.Seconds()*1e3)
			awaitReady(b, p.addr)
			if n == starts-1 && again == 1 {
				rest = settled(b, p.pid)
			}
			p.stop()
		}
	}
	for i := range took {
		slices.Sort(took[i])
	}
	return []figure{
		{what: "start to ready, new folder", value: took[0][starts/2], unit: "ms", most: 100},
		{what: "start to ready, existing folder", value: took[1][starts/2], unit: "ms", most: 100},
		{what: "resident, idle", value: rest.resident, unit: "MB", most: 60},
		{what: "... of it private", value: rest.private, unit: "MB"},
	}
}

// populatedStorage creates a database with 100,000 agents, and returns the tokens of idleAgents of
// them.
func populatedStorage(b *testing.B) (data storage, secrets []string) {
	b.Helper()
	data = newStorage(b, sqlite)
	h := newServer(b, data.testDatabase())
	seed(b, h.store)
	tokens := auth.New(h.store, nil)
	_, err := tokens.EnsureAdmin(b.Context(), adminToken, true)
	require.NoError(b, err)
	secrets = make([]string, idleAgents)
	together(b, writers, idleAgents, func(n int) error {
		id := specialist(n)
		issued, err := tokens.Create(b.Context(), models.System(), auth.TokenDraft{Name: &id, Scopes: []models.Scope{models.ScopeAgentsRead}, AgentID: &id}, nil)
		secrets[n] = issued.Secret
		return err
	})
	require.NoError(b, h.store.Close())
	return data, secrets
}

// settled returns the memory of a process that has rested.
func settled(b *testing.B, pid int) memory {
	b.Helper()
	<-time.After(settleTime)
	return memoryOf(b, pid)
}

// together calls fn n times, with a limit on concurrent calls.
func together(b *testing.B, atOnce, n int, do func(int) error) {
	b.Helper()
	var running sync.WaitGroup
	errs := make(chan error, n)
	next := make(chan int, n)
	for i := range n {
		next <- i
	}
	close(next)
	for range atOnce {
		running.Go(func() {
			for i := range next {
				errs <- do(i)
			}
		})
	}
	running.Wait()
	for range n {
		require.NoError(b, <-errs)
	}
}

// connectIdle opens a WebSocket, reads the first message and then answers pings.
func connectIdle(addr, token string) (*websocket.Conn, error) {
	c, _, err := websocket.Dial(detached(), "ws://"+addr+"/api/agent/connect", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}, Subprotocols: []string{"envelope.v1"},
	})
	if err != nil {
		return nil, err
	}
	_, got, err := c.Read(detached())
	if err != nil || !bytes.Contains(got, []byte(`{"hello"`)) {
		return nil, fmt.Errorf("no hello but %q: %w", got, err)
	}
	c.CloseRead(detached())
	return c, nil
}
