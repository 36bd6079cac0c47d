package app_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"comet/models"
	"comet/store/ledgercheck"
)

// tickOf is the interval at which a test checks a condition.
const tickOf = 5 * time.Millisecond

// calling is calls of a tool by many clients, and which were answered.
type calling struct {
	mu       sync.Mutex
	answered map[string]bool
	count    atomic.Int64
}

// flow runs 8 callers until stop is called or their server has ended; stop waits for them.
func (k *calling) flow(t *testing.T, c *client, name string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := c.mcpClient(t)
	var running sync.WaitGroup
	for caller := range 8 {
		running.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				text := fmt.Sprintf("%s-%d-%d", name, caller, n)
				if echo(ctx, s, text) == nil {
					k.note(text)
				} else if _, _, err := c.do(ctx, http.MethodGet, "/healthz", nil); err != nil {
					return // it is gone
				}
			}
		})
	}
	return func() {
		cancel()
		running.Wait()
	}
}

func (k *calling) note(text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.answered == nil {
		k.answered = map[string]bool{}
	}
	k.answered[text] = true
	k.count.Add(1)
}

// known returns the calls that have been answered by now.
func (k *calling) known() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]string, 0, len(k.answered))
	for text := range k.answered {
		out = append(out, text)
	}
	return out
}

// TestCallsOfToolsSurviveKill9 kills the server in the middle of calls. What was written stays
// written, and a call of the audit log is charged; with tools.wait_for_audit that is every call that
// was answered (docs/architecture.md, ADR 23). What was reserved expires within two minutes, and the
// program of the upstream ends with the server (ADR 22).
func TestCallsOfToolsSurviveKill9(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]bool{"written a moment later": false, "written before the response": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEveryDatabase(t, func(t *testing.T, database setting) {
				callsSurviveKill9(t, waits, database, withTools(t), env(fmt.Sprintf("COMET_TOOLS_WAIT_FOR_AUDIT=%t", waits)))
			})
		})
	}
}

func callsSurviveKill9(t *testing.T, waits bool, settings ...setting) {
	t.Helper()
	data := t.TempDir()
	var written []string
	for round := range min(3, kills(t)) {
		p := serve(t, data, settings...)
		c := newClient(t, p.url(t), adminToken(t, data))
		requireWritten(t, c, written)
		k := &calling{}
		stop := k.flow(t, c, fmt.Sprintf("round-%d", round))
		eventually(t, func() bool { return k.count.Load() >= 100 }, "calls are answered")
		known := k.known()
		requireWritten(t, c, known) // reading the audit log writes it
		target := k.count.Load() + 20
		eventually(t, func() bool { return k.count.Load() >= target }, "calls are answered")
		program := get[struct{ PID int }](t, c, "/api/v1/upstreams/tools").PID
		require.NoError(t, syscall.Kill(program, 0))
		p.kill()
		stop()
		if waits {
			known = k.known()
		}
		written = append(written, known...)
		eventually(t, func() bool { return gone(program) }, "the program of the upstream has ended")
	}
	ended := time.Now()
	p := serve(t, data, settings...)
	c := newClient(t, p.url(t), adminToken(t, data))
	requireWritten(t, c, written)
	_, tokens := c.trail(t)
	require.GreaterOrEqual(t, c.used(t, models.RootAgentID), tokens, "what the audit log has is charged")
	require.Zero(t, get[ledgercheck.Verification](t, c, "/api/v1/ledger/verify").Total)
	for _, r := range get[struct{ Reservations []models.Reservation }](t, c, "/api/v1/agents/"+models.RootAgentID+"/reservations?state=held").Reservations {
		require.WithinRange(t, r.ExpiresAt, r.CreatedAt, ended.Add(2*time.Minute), "reservations of the killed server expire")
	}
	p.stop(t)
}

// gone reports whether a program has ended, even if no process has waited for it.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}

// requireWritten looks for calls in the audit trail, each of which has to be there once.
func requireWritten(t *testing.T, c *client, texts []string) {
	t.Helper()
	calls, _ := c.trail(t)
	for _, text := range texts {
		require.Equal(t, 1, calls[echoDigest(text)], "%s was answered", text)
	}
}

// TestADatabaseThatIsAwayLosesNoCall: calls that are answered while nothing can be written
// are written when it can, each once, and charged.
func TestADatabaseThatIsAwayLosesNoCall(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(t *testing.T, database setting) {
		data, tools, away := t.TempDir(), withTools(t), &absence{}
		p := serve(t, data, database, tools, away.through(t, data))
		c := newClient(t, p.url(t), adminToken(t, data))
		k := &calling{}
		if away.reads {
			k.whileLocked(t, c, away)
		} else {
			k.whileCut(t, c, away)
		}
		eventually(t, func() bool {
			calls, _ := c.trail(t)
			return !slices.ContainsFunc(k.known(), func(text string) bool { return calls[echoDigest(text)] == 0 })
		}, "the calls are written once the database can be reached")
		requireWritten(t, c, k.known())
		require.Zero(t, get[ledgercheck.Verification](t, c, "/api/v1/ledger/verify").Total)
		_, tokens := c.trail(t)
		eventually(t, func() bool { return c.used(t, models.RootAgentID) >= tokens }, "what is in the trail is charged")
		p.stop(t)
	})
}

// whileLocked makes calls while the database can be read and not written: what the ledger has
// reserved can be spent meanwhile. A call that must wait for the ledger gets an error after a
// while and is then tried again.
func (k *calling) whileLocked(t *testing.T, c *client, away *absence) {
	t.Helper()
	s, meanwhile := c.mcpClient(t), 0
	for round := 0; meanwhile < 30; round++ {
		require.Less(t, round, 10, "only %d calls were answered meanwhile", meanwhile)
		name := fmt.Sprintf("round-%d", round)
		require.NoError(t, echo(t.Context(), s, name))
		k.note(name)
		c.trail(t) // it is written, so that the next calls reserve again
		away.begin(t, c)
		for n := range 10 {
			text := fmt.Sprintf("%s-%d", name, n)
			if echo(t.Context(), s, text) != nil {
				break
			}
			k.note(text)
			meanwhile++
		}
		away.end(t)
	}
}

// whileCut runs many calls while the database is unreachable, and continues when it is back.
func (k *calling) whileCut(t *testing.T, c *client, away *absence) {
	t.Helper()
	stop := k.flow(t, c, "a")
	defer stop()
	flows := func(what string) {
		target := k.count.Load() + 20
		eventually(t, func() bool { return k.count.Load() >= target }, what)
	}
	flows("the calls flow")
	for range 3 {
		away.begin(t, c)
		away.end(t)
		flows("the calls flow again")
	}
}

// absence takes the database away from a server: the file of SQLite is locked by another process
// else, so that it can be read and not written, and the way to PostgreSQL is cut.
type absence struct {
	reads bool // it can still be read
	file  string
	lock  *sql.DB
	tx    *sql.Conn
	way   *proxy
	quiet func()
}

// through has a server go to its database by a way that can be taken away.
func (a *absence) through(t *testing.T, data string) setting {
	t.Helper()
	return func(cmd *exec.Cmd) {
		for i, variable := range cmd.Env {
			address, ok := strings.CutPrefix(variable, "COMET_DATABASE_URL=")
			if !ok {
				continue
			}
			u, err := url.Parse(address)
			require.NoError(t, err)
			a.way = newProxy(t, u.Host)
			u.Host = a.way.address()
			cmd.Env[i] = "COMET_DATABASE_URL=" + u.String()
		}
		a.reads, a.file = a.way == nil, filepath.Join(data, "comet.db")
	}
}

func (a *absence) begin(t *testing.T, c *client) {
	t.Helper()
	if a.way != nil {
		a.quiet = a.way.cutRepeatedly(10 * time.Millisecond)
		eventually(t, func() bool { return c.status(t, "/readyz") != http.StatusOK }, "the database is away")
		return
	}
	var err error
	a.lock, err = sql.Open("sqlite", "file:"+a.file+"?_pragma=busy_timeout(60000)")
	require.NoError(t, err)
	a.tx, err = a.lock.Conn(t.Context())
	require.NoError(t, err)
	_, err = a.tx.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)
}

func (a *absence) end(t *testing.T) {
	t.Helper()
	if a.way != nil {
		a.quiet()
		return
	}
	_, err := a.tx.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	require.NoError(t, a.tx.Close())
	require.NoError(t, a.lock.Close())
}

// TestAReleasedReservationDoesNotBlockCalls: what the gateway has reserved for an agent
// can be released by that agent itself. Its calls are charged all the same, and those of all
// are written.
func TestAReleasedReservationDoesNotBlockCalls(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(t *testing.T, database setting) {
		data := t.TempDir()
		p := serve(t, data, database, withTools(t))
		c := newClient(t, p.url(t), adminToken(t, data))
		s := c.mcpClient(t)
		released := 0
		for n := range 20 {
			require.NoError(t, echo(t.Context(), s, fmt.Sprintf("call-%d", n)))
			for _, r := range get[struct{ Reservations []models.Reservation }](t, c, "/api/v1/agents/"+models.RootAgentID+"/reservations?state=held").Reservations {
				status, _, err := c.do(t.Context(), http.MethodDelete, "/api/v1/agents/"+models.RootAgentID+"/reservations/"+r.ID, nil)
				require.NoError(t, err)
				if status == http.StatusNoContent { // else it has been renewed meanwhile
					released++
				}
			}
		}
		require.Positive(t, released)
		calls, tokens := c.trail(t)
		for n := range 20 {
			require.Equal(t, 1, calls[echoDigest(fmt.Sprintf("call-%d", n))])
		}
		eventually(t, func() bool { return c.used(t, models.RootAgentID) == tokens }, "each call is charged once")
		require.Zero(t, get[ledgercheck.Verification](t, c, "/api/v1/ledger/verify").Total)
		p.stop(t)
	})
}
