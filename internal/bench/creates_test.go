package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/models"
	"comet/store"
)

// BenchmarkCreate measures durable creates over HTTP in a registry of 100,000 agents. comet is the
// whole server, with its event relay, feeds and jobs. The baselines use a copy of the database: a
// plain program that writes the same rows in one transaction per request, and the group writer
// without HTTP and without the registry's rules.
func BenchmarkCreate(b *testing.B) {
	c := openCreateServers(b)
	var results []result
	for _, m := range []measurement{c.creates(writers, 4), c.creates(1, 0.9)} {
		b.Run(m.name, func(b *testing.B) { results = append(results, m.run(b)...) })
	}
	printTable(os.Stdout, fmt.Sprintf("%d agents, SQLite.", population), results)
}

// createServers are comet and a server with the plain program, with equal databases.
type createServers struct {
	comet *cometServer
	plain *testServer
	last  atomic.Int64 // numbers the new agents of all subjects
}

func openCreateServers(b *testing.B) *createServers {
	b.Helper()
	ours, theirs := newStorage(b, sqlite), newStorage(b, sqlite)
	h := newServer(b, ours.testDatabase())
	seed(b, h.store)
	require.NoError(b, h.store.Close())
	copyDatabase(b, ours, theirs)
	c := &createServers{plain: newServer(b, theirs.testDatabase())}
	c.plain.open(b, models.ScopeAgentsRead, openRawWriter(b, c.plain.testDatabase).mount)
	c.comet = startComet(b, ours, nil)
	b.Cleanup(func() {
		created := int64(-2 * population)
		for _, s := range []storage{ours, theirs} {
			created += countRows(b, s, "agents")
		}
		require.Equal(b, c.last.Load(), created, "each create must add one agent")
	})
	return c
}

// copyDatabase copies a closed SQLite database.
func copyDatabase(b *testing.B, from, to storage) {
	b.Helper()
	require.NoFileExists(b, from.testDatabase().file()+"-wal", "the database is open")
	out, err := exec.CommandContext(b.Context(), "cp", from.testDatabase().file(), to.testDatabase().file()).CombinedOutput()
	require.NoError(b, err, "%s", out)
	f, err := os.Open(to.testDatabase().file())
	require.NoError(b, err)
	require.NoError(b, f.Sync(), "sync the copy, so that it is not written to disk during the measurement")
	require.NoError(b, f.Close())
}

// countRows counts the rows of a table.
func countRows(b *testing.B, s storage, table string) (n int64) {
	b.Helper()
	db := s.testDatabase().raw(b, 1)
	require.NoError(b, db.QueryRowContext(detached(), "SELECT count(*) FROM "+table).Scan(&n))
	require.NoError(b, db.Close())
	return n
}

func (c *createServers) creates(callers int, aim float64) measurement {
	return measurement{
		name: fmt.Sprint(callers), what: fmt.Sprintf("create, %d callers", callers),
		open: func(b *testing.B) []*subject {
			b.Helper()
			return []*subject{
				c.creator(b, "ours", c.comet.addr, "/api/v1/agents", callers),
				c.creator(b, "one transaction each", c.plain.chain, "/bench/raw/agents", callers),
				c.writer("the writer alone", callers),
				c.plain.noop(b, baselineChain, c.plain.chain, callers), c.plain.noop(b, baselineBare, c.plain.bare, callers),
			}
		},
		against: []comparison{
			{subject: "one transaction each", metric: "of_single", aim: aim}, {subject: "the writer alone", metric: "of_writer"},
			{subject: baselineChain, metric: "of_noop_chain"}, {subject: baselineBare, metric: "of_noop_bare"},
		},
	}
}

// newAgent is the body of a create request like the document's (CHE·NU §7.1).
func newAgent(n int64) []byte {
	return fmt.Appendf(nil, `{"id":"created-%09d","name":"Daily Standup Assistant","level":3,"sphere_id":2,"frequency_hz":444,`+
		`"capabilities":["scheduling","reminders","reporting"],"description":"Helps organize daily standup meetings",`+
		`"parent_id":%q,"token_budget":15000}`, n, specialist(int(n)%families()))
}

func (c *createServers) creator(b *testing.B, name, addr, path string, callers int) *subject {
	b.Helper()
	all := newCallers(b, addr, callers)
	return &subject{name: name, callers: callers, slice: writeSlice, do: func(n, _ int) error {
		id := c.last.Add(1)
		status, body, err := all[n].exchange(post(path, adminToken, newAgent(id)))
		if err == nil && (status != 201 || !bytes.HasPrefix(body, fmt.Appendf(nil, `{"id":"created-%09d"`, id))) {
			err = fmt.Errorf("%d %s", status, body)
		}
		return err
	}}
}

func (c *createServers) writer(name string, callers int) *subject {
	p := models.Principal{TokenID: "bench", Name: "bench"}
	return &subject{name: name, callers: callers, slice: writeSlice, do: func(_, _ int) error {
		n := c.last.Add(1)
		return c.plain.store.Write(detached(), func(tx *store.Tx) error {
			parent, err := tx.Agents().LockShared(specialist(int(n) % families()))
			if err != nil {
				return err
			}
			a := models.Agent{
				ID: fmt.Sprintf("created-%09d", n), Name: "Daily Standup Assistant", Level: models.LevelAssistant, SphereID: new(2),
				FrequencyHz: 444, Capabilities: []string{"scheduling", "reminders", "reporting"},
				Description: "Helps organize daily standup meetings", ParentID: &parent.ID, TokenBudget: new(int64(15000)),
				IsActive: true, Version: 1, CreatedAt: tx.Now(), UpdatedAt: tx.Now(),
			}
			if err := tx.Agents().Insert(a); err != nil {
				return err
			}
			entry := models.AuditEntry{AgentID: a.ID, Actor: p.Name, ActorID: p.TokenID, Action: models.AuditCreated, Version: 1, Changes: creation(a)}
			if err := tx.Agents().Audit(entry); err != nil {
				return err
			}
			return tx.Events().Emit(events.AgentCreated, a.ID, snapshot(a, p.Name))
		})
	}}
}
