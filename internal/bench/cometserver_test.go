package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/app"
	"comet/internal/config"
	"comet/store/storetest"
)

// cometServer is a running comet: the whole server in this process, or the program in a separate one.
type cometServer struct {
	addr   string
	v5Addr string               // of the TCP listener, "" for none
	cpu    func() time.Duration // processor time of a separate process, nil for this one
	data   storage

	agents atomic.Int64
}

// storage is a migrated database without rows.
type storage struct {
	database string
	dir, url string // url is empty for SQLite
}

func newStorage(b *testing.B, database string) storage {
	b.Helper()
	options := storetest.Migrated(b, database)
	return storage{database: database, dir: options.Dir, url: options.DatabaseURL}
}

// testDatabase returns the database for pools of the baselines.
func (s storage) testDatabase() testDatabase {
	g := testDatabase{database: s.database, clock: time.Now}
	g.options.Dir, g.options.DatabaseURL = s.dir, s.url
	return g
}

// startComet starts the whole server in this process.
func startComet(b *testing.B, data storage, opts *app.Options) *cometServer {
	b.Helper()
	s, stop := openComet(b, data, opts)
	b.Cleanup(func() { stop(b) })
	return s
}

// openComet is startComet for a server that the caller stops.
func openComet(b *testing.B, data storage, opts *app.Options) (s *cometServer, stop func(*testing.B)) {
	b.Helper()
	cfg := config.Default()
	cfg.Listen, cfg.Data, cfg.DatabaseURL, cfg.AdminToken = "127.0.0.1:0", data.dir, data.url, adminToken
	cfg.Transport.V5Listen, cfg.Transport.V5SelfRegistration, cfg.Sandbox.Warm = "127.0.0.1:0", true, 0
	if opts == nil {
		opts = &app.Options{}
	}
	opts.Logger = accessLog(b)
	a, err := app.New(b.Context(), cfg, opts)
	require.NoError(b, err)
	require.NoError(b, a.Start(b.Context()))
	s = &cometServer{addr: a.URL()[len("http://"):], v5Addr: a.V5Addr(), data: data}
	awaitReady(b, s.addr)
	return s, func(b *testing.B) {
		b.Helper()
		require.NoError(b, a.Stop(detached()))
	}
}

// awaitReady waits until /readyz responds with 200.
func awaitReady(b *testing.B, addr string) {
	b.Helper()
	c := newCaller(b, addr)
	require.Eventually(b, func() bool {
		status, _, err := c.exchange(get("/readyz", adminToken))
		return err == nil && status == 200
	}, time.Minute, 5*time.Millisecond)
}

// call sends a request as the admin, requires the status and decodes the response.
func (s *cometServer) call(b *testing.B, request []byte, status int, response any) {
	b.Helper()
	got, body, err := newCaller(b, s.addr).exchange(request)
	require.NoError(b, err)
	require.Equal(b, status, got, "%s\n%s", request, body)
	require.NoError(b, json.Unmarshal(body, response), "%s", body)
}

// registerAgent creates an agent of the type with one capability and returns its id and token.
func (s *cometServer) registerAgent(b *testing.B, agentType, capability string) (id, token string) {
	b.Helper()
	id = fmt.Sprintf("bench-%s-%d", agentType, s.agents.Add(1))
	var created struct{ ID string }
	s.call(b, post("/api/v1/agents", adminToken, fmt.Appendf(nil, `{"id":%q,"name":%[1]q,"level":2,"parent_id":"orch-my-team","sphere_id":8,`+
		`"frequency_hz":555,"capabilities":[%q],"type":%q}`, id, capability, agentType)), 201, &created)
	var issued struct{ Token string }
	s.call(b, post("/api/v1/tokens", adminToken, fmt.Appendf(nil, `{"name":%q,"scopes":["agents:write","messages:send"],"agent_id":%[1]q}`, id)), 201, &issued)
	return id, issued.Token
}

// awaitOnline waits until a worker is connected.
func (s *cometServer) awaitOnline(b *testing.B, id string) {
	b.Helper()
	c, last := newCaller(b, s.addr), ""
	online := func() bool {
		status, body, err := c.exchange(get("/api/v1/workers/"+id, adminToken))
		last = fmt.Sprint(status, " ", string(body), " ", err)
		return err == nil && status == 200 && bytes.Contains(body, []byte(`"state":"online"`))
	}
	for deadline := time.Now().Add(time.Minute); !online(); <-time.After(5 * time.Millisecond) {
		require.True(b, time.Now().Before(deadline), "the worker %s is not online: %s", id, last)
	}
}

// before starts the comet program of an earlier version, which COMET_BENCH_BEFORE names, on a new
// database. ok is false if none is named.
func before(b *testing.B, database string, args ...string) (s *cometServer, ok bool) {
	b.Helper()
	path := os.Getenv("COMET_BENCH_BEFORE")
	if path == "" {
		return nil, false
	}
	return startProgram(b, path, emptyStorage(b, database), args...), true
}

// emptyStorage is an empty database: another version migrates it itself.
func emptyStorage(b *testing.B, database string) storage {
	b.Helper()
	s := storage{database: database, dir: b.TempDir()}
	if database == postgres {
		s.url = storetest.EmptyPostgres(b)
	}
	return s
}
