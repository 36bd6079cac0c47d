package app_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/internal/usage"
	"comet/store"
	"comet/store/ledgercheck"
	"comet/store/storetest"
)

// reservationsEnv names the environment variable with the number of reservations, as in
// internal/usage.
const reservationsEnv = "COMET_TEST_LEDGER_RESERVATIONS"

func reservations(t *testing.T) int {
	t.Helper()
	text := os.Getenv(reservationsEnv)
	switch {
	case text != "":
		n, err := strconv.Atoi(text)
		require.NoError(t, err, reservationsEnv)
		return n
	case testing.Short() || len(buildFlags()) > 0:
		return 64 * 8
	}
	return 64 * 40
}

// TestServersOnOneDatabaseNeverOverspend lets 64 clients make reservations concurrently, on three
// servers if the database can be shared, else on one.
func TestServersOnOneDatabaseNeverOverspend(t *testing.T) {
	t.Parallel()
	for _, name := range storetest.Databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clients, stop := servers(t, name)
			m := newMarket(t, clients)
			begun := time.Now()
			m.trade(t, reservations(t))
			t.Logf("%d reservations of %d servers in %s: %d granted, %d refused; at most %d of %d were out", reservations(t), len(clients),
				time.Since(begun).Round(time.Millisecond), m.granted.Load(), m.refused.Load(), m.roof.top.Load(), m.roof.limit)
			m.requireSettled(t)
			m.requireEvents(t, stop())
		})
	}
}

// servers starts the servers and returns a client of each. stop ends them and returns the location
// of the database.
func servers(t *testing.T, database string) (clients []*client, stop func() store.Options) {
	t.Helper()
	token, opts := strings.Repeat("t", 32), store.Options{Dir: t.TempDir(), SkipMigrations: true}
	settings := []setting{env("COMET_ADMIN_TOKEN=" + token)}
	data := []string{opts.Dir}
	if database == "postgres" {
		opts.DatabaseURL = storetest.EmptyPostgres(t)
		settings = append(settings, env("COMET_DATABASE_URL="+opts.DatabaseURL, secretKeys(t)))
		data = append(data, t.TempDir(), t.TempDir())
	}
	all := make([]*process, 0, len(data))
	for _, dir := range data {
		p := serve(t, dir, settings...)
		all, clients = append(all, p), append(clients, newClient(t, p.url(t), token))
	}
	return clients, func() store.Options {
		for _, p := range all {
			p.stop(t)
		}
		return opts
	}
}

// market is a set of agents with small budgets below one with a common budget.
type market struct {
	clients          []*client
	stalls           []*purse
	roof             *purse
	granted, refused atomic.Int64
	used             atomic.Int64
	refusing         sync.Map // agents whose budget refused a reservation
}

// purse counts the tokens of a budget that are granted and not returned.
type purse struct {
	id       string
	limit    int64
	out, top atomic.Int64
}

func (p *purse) take(t *testing.T, tokens int64) {
	t.Helper()
	out := p.out.Add(tokens)
	if out > p.limit {
		t.Errorf("%d tokens granted of a budget of %d of %s", out, p.limit, p.id)
	}
	for top := p.top.Load(); out > top && !p.top.CompareAndSwap(top, out); top = p.top.Load() {
	}
}

func newMarket(t *testing.T, clients []*client) *market {
	t.Helper()
	m := &market{clients: clients, roof: &purse{id: "roof", limit: 6_000}}
	roof := specialist("roof")
	roof.TokenBudget = m.roof.limit
	clients[0].make(t, roof)
	clients[0].patch(t, "roof", `{"budget_scope":"subtree"}`)
	for n := range 4 {
		p := &purse{id: fmt.Sprintf("stall-%d", n), limit: 2_500}
		a := assistant(p.id, "roof", n)
		a.TokenBudget = p.limit
		clients[0].make(t, a)
		m.stalls = append(m.stalls, p)
	}
	return m
}

// trade lets 64 clients make n reservations. Each client holds a few, then settles or releases the
// oldest.
func (m *market) trade(t *testing.T, n int) {
	t.Helper()
	var wg sync.WaitGroup
	for k := range 64 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(rand.Uint64(), uint64(k)))
			var held []grant
			for i := k; i < n; i += 64 {
				c := m.clients[(k+i/64)%len(m.clients)]
				if g, ok := m.ask(t, c, m.stalls[r.IntN(len(m.stalls))], 1+r.Int64N(120)); ok {
					held = append(held, g)
				}
				if len(held) > 3 || len(held) > 0 && r.IntN(8) == 0 {
					m.end(t, c, held[0], r.IntN(5))
					held = held[1:]
				}
			}
			for _, g := range held {
				m.end(t, m.clients[r.IntN(len(m.clients))], g, r.IntN(5))
			}
		})
	}
	wg.Wait()
}

// grant is a held reservation.
type grant struct {
	from   *purse
	path   string
	tokens int64
}

func (m *market) ask(t *testing.T, c *client, p *purse, tokens int64) (g grant, ok bool) {
	path := "/api/v1/agents/" + p.id + "/reservations"
	status, body, err := c.do(t.Context(), http.MethodPost, path, map[string]any{"tokens": tokens})
	var answer struct {
		ID      string
		AgentID string `json:"agent_id"`
	}
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	switch {
	case err == nil && status == http.StatusTooManyRequests:
		m.refused.Add(1)
		m.refusing.Store(answer.AgentID, true)
		return grant{}, false
	case err != nil || status != http.StatusCreated:
		t.Errorf("a reservation got status %d: %s, %v", status, body, err)
		return grant{}, false
	}
	m.granted.Add(1)
	p.take(t, tokens)
	m.roof.take(t, tokens)
	return grant{p, path + "/" + answer.ID, tokens}, true
}

// end settles or releases a reservation. In total a third of the budget is used.
func (m *market) end(t *testing.T, c *client, g grant, fate int) {
	used := int64(0)
	if fate < 2 && m.used.Add(1) <= m.roof.limit/3 {
		used = 1
	}
	g.from.out.Add(used - g.tokens)
	m.roof.out.Add(used - g.tokens)
	var status int
	var body []byte
	var err error
	if fate > 2 {
		status, body, err = c.do(t.Context(), http.MethodDelete, g.path, nil)
	} else {
		status, body, err = c.do(t.Context(), http.MethodPost, g.path+"/settle", map[string]any{"tokens": used})
	}
	if err != nil || status != http.StatusOK && status != http.StatusNoContent {
		t.Errorf("the end of a reservation got status %d: %s, %v", status, body, err)
	}
}

// requireSettled checks on every server that nothing is reserved and that usage equals the
// settlements.
func (m *market) requireSettled(t *testing.T) {
	t.Helper()
	for _, c := range m.clients {
		var used int64
		for _, p := range m.stalls {
			u := get[usage.AgentUsage](t, c, "/api/v1/agents/"+p.id+"/usage")
			require.Zero(t, u.Reserved)
			require.Equal(t, p.out.Load(), c.used(t, p.id))
			used += c.used(t, p.id)
		}
		require.Equal(t, m.roof.out.Load(), used)
		require.Zero(t, get[ledgercheck.Verification](t, c, "/api/v1/ledger/verify").Total)
	}
	require.Positive(t, m.granted.Load())
	require.Positive(t, m.refused.Load())
}

// requireEvents checks that each budget that refused a reservation has one event per day.
func (m *market) requireEvents(t *testing.T, database store.Options) {
	t.Helper()
	s, err := store.Open(t.Context(), database)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Write(t.Context(), func(tx *store.Tx) error { _, _, err := tx.Events().Number(1000); return err }))
	recorded, err := s.Events(t.Context()).After(0, 1000)
	require.NoError(t, err)
	emitted, times := map[string]bool{}, map[string]int{}
	for _, e := range recorded {
		if e.Type == events.BudgetExceeded || e.Type == events.BudgetWarning {
			var data usage.BudgetAlert
			require.NoError(t, json.Unmarshal(e.Data, &data))
			times[string(e.Type)+" "+data.AgentID+" "+data.Day]++
			emitted[data.AgentID] = emitted[data.AgentID] || e.Type == events.BudgetExceeded
		}
	}
	for what, n := range times {
		require.Equal(t, 1, n, what)
	}
	m.refusing.Range(func(id, _ any) bool {
		require.True(t, emitted[id.(string)], "%s refused", id)
		delete(emitted, id.(string))
		return true
	})
	require.Empty(t, emitted, "no event without a refusal and below the warning level")
}
