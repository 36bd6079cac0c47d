package app_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/usage"
	"comet/models"
	"comet/store/ledgercheck"
)

// TestLedgerSurvivesKill9 kills the server repeatedly while 16 clients record facts, reserve,
// settle and release on the same data. Every sum must be correct, and every acknowledged operation
// must exist once. Unacknowledged requests are repeated and count once.
func TestLedgerSurvivesKill9(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(t *testing.T, database setting) {
		data := t.TempDir()
		s := &spending{facts: map[string]*spentFact{}, held: map[string]*heldTokens{}}
		for round := range kills(t) {
			p := serve(t, data, database)
			c := newClient(t, p.url(t), adminToken(t, data))
			s.spenders(t, c)
			s.requireKept(t, c)
			done := s.flow(t, c, round)
			target := s.count.Load() + 1 + rand.Int64N(600)
			eventually(t, func() bool { return s.count.Load() >= target }, "requests are acknowledged")
			p.kill()
			done()
		}
		p := serve(t, data, database)
		c := newClient(t, p.url(t), adminToken(t, data))
		s.requireKept(t, c)
		require.Greater(t, s.count.Load(), int64(kills(t)))
		t.Logf("%d requests were acknowledged, of %d facts and %d reservations; %d responses to grants were lost", s.count.Load(), len(s.facts), len(s.held), s.lostGrants)
		p.stop(t)
	})
}

// spending records the requests of many clients and their responses.
type spending struct {
	mu         sync.Mutex
	facts      map[string]*spentFact  // by request_id
	held       map[string]*heldTokens // by id
	asked      []ask                  // reservation requests without a response
	lostGrants int                    // granted without a key, response lost
	count      atomic.Int64           // acknowledged requests
}

type spentFact struct {
	agent        string
	tokens       int64
	acknowledged bool
}

// heldTokens is a granted reservation.
type heldTokens struct {
	agent  string
	tokens int64
	state  models.ReservationState
	// doubtful is set if its settlement or release was requested without a response.
	doubtful bool
	settled  int64
}

// ask is a request for a reservation.
type ask struct {
	agent, key string
	tokens     int64
}

const spenders = 4

func spender(n int) string { return fmt.Sprintf("spender-%d", n%spenders) }

// spenders creates the agents below one with a common budget, in the first round.
func (s *spending) spenders(t *testing.T, c *client) {
	t.Helper()
	if c.status(t, "/api/v1/agents/spender-0") == http.StatusOK {
		return
	}
	parent := specialist("parent")
	parent.TokenBudget = 100_000
	c.make(t, parent)
	c.patch(t, "parent", `{"budget_scope":"subtree"}`)
	for n := range spenders {
		a := assistant(spender(n), "parent", n)
		a.TokenBudget = 50_000
		c.make(t, a)
	}
}

func (c *client) make(t *testing.T, d draft) {
	t.Helper()
	status, body, err := c.do(t.Context(), http.MethodPost, "/api/v1/agents", d)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status, "%s", body)
}

func (c *client) patch(t *testing.T, id, patch string) {
	t.Helper()
	status, body, err := c.do(t.Context(), http.MethodPatch, "/api/v1/agents/"+id, json.RawMessage(patch))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, "%s", body)
}

// send sends a usage request and decodes the response; false means that the server is down.
func (s *spending) send(t *testing.T, c *client, method, path string, body, answer any, want []int, header ...string) bool {
	status, text, err := c.do(t.Context(), method, "/api/v1/agents/"+path, body, header...)
	if status == 0 && err != nil {
		return false
	}
	if !slices.Contains(want, status) {
		t.Errorf("%s %s got status %d: %s", method, path, status, text)
		return false
	}
	if err != nil { // the response is incomplete
		return false
	}
	if answer != nil {
		if err := json.Unmarshal(text, answer); err != nil {
			t.Errorf("%s %s got %s: %v", method, path, text, err)
			return false
		}
	}
	s.count.Add(1)
	return true
}

// flow lets 16 clients spend until the server is killed; done waits for them.
func (s *spending) flow(t *testing.T, c *client, round int) (done func()) {
	t.Helper()
	var wg sync.WaitGroup
	for k := range 16 {
		wg.Go(func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("k-%d-%d-%d", round, k, i)
				if i%2 == 0 {
					name = ""
				}
				if !s.record(t, c, spender(k), fmt.Sprintf("r-%d-%d-%d", round, k, i), int64(1+i%5)) ||
					!s.spend(t, c, ask{spender(k + i), name, int64(1 + i%9)}, i) {
					return
				}
			}
		})
	}
	return wg.Wait
}

func (s *spending) record(t *testing.T, c *client, agent, name string, tokens int64) bool {
	f := &spentFact{agent: agent, tokens: tokens}
	s.mu.Lock()
	s.facts[name] = f
	s.mu.Unlock()
	ok := s.send(t, c, http.MethodPost, agent+"/usage", map[string]any{"tokens": tokens, "request_id": name}, nil, []int{http.StatusCreated})
	s.mu.Lock()
	defer s.mu.Unlock()
	f.acknowledged = ok
	return ok
}

// reserve requests a reservation and returns its id, or "" without a response.
func (s *spending) reserve(t *testing.T, c *client, a ask) string {
	var granted models.Reservation
	var header []string
	if a.key != "" {
		header = []string{"Idempotency-Key", a.key}
	}
	body := map[string]any{"tokens": a.tokens, "ttl_seconds": 86_400}
	ok := s.send(t, c, http.MethodPost, a.agent+"/reservations", body, &granted, []int{http.StatusCreated}, header...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ok {
		s.asked = append(s.asked, a)
		return ""
	}
	s.held[granted.ID] = &heldTokens{agent: a.agent, tokens: a.tokens, state: models.ReservationHeld}
	return granted.ID
}

// spend reserves tokens and settles, releases or leaves them.
func (s *spending) spend(t *testing.T, c *client, a ask, i int) bool {
	id := s.reserve(t, c, a)
	switch {
	case id == "":
		return false
	case i%4 == 0:
		return true
	case i%4 == 1:
		return s.end(t, c, id, models.ReservationReleased, 0)
	}
	return s.end(t, c, id, models.ReservationSettled, a.tokens+int64(i%3)-1)
}

// end settles or releases a reservation.
func (s *spending) end(t *testing.T, c *client, id string, state models.ReservationState, used int64) bool {
	s.mu.Lock()
	h := s.held[id]
	s.mu.Unlock()
	h.state, h.settled, h.doubtful = state, used, true
	path := h.agent + "/reservations/" + id
	if state == models.ReservationReleased {
		h.doubtful = !s.send(t, c, http.MethodDelete, path, nil, nil, []int{http.StatusNoContent})
	} else {
		h.doubtful = !s.send(t, c, http.MethodPost, path+"/settle", map[string]any{"tokens": used}, nil, []int{http.StatusOK})
	}
	return !h.doubtful
}

// requireKept checks that the ledger is sound and holds all acknowledged operations, and repeats
// the doubtful ones.
func (s *spending) requireKept(t *testing.T, c *client) {
	t.Helper()
	require.Zero(t, get[ledgercheck.Verification](t, c, "/api/v1/ledger/verify").Total)
	s.requireFacts(t, c)
	s.requireReservations(t, c)
	v := get[ledgercheck.Verification](t, c, "/api/v1/ledger/verify")
	require.Zero(t, v.Total)
	var facts, tokens int64
	for _, f := range s.facts {
		facts, tokens = facts+1, tokens+f.tokens
	}
	for _, h := range s.held {
		if h.state == models.ReservationSettled && h.settled > 0 {
			facts, tokens = facts+1, tokens+h.settled
		}
	}
	require.Equal(t, facts, v.Facts, "each fact counts once")
	var used int64
	for n := range spenders {
		used += c.used(t, spender(n))
	}
	require.Equal(t, tokens, used)
}

// used returns the usage of an agent since yesterday, because the test may run over midnight.
func (c *client) used(t *testing.T, agent string) (tokens int64) {
	t.Helper()
	from := time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly)
	for _, b := range get[struct{ Buckets []usage.HistoryBucket }](t, c, "/api/v1/agents/"+agent+"/usage/history?window=day&from="+from).Buckets {
		tokens += b.Tokens
	}
	return tokens
}

// requireFacts sends every fact again: an acknowledged fact is a replay, any other counts once.
func (s *spending) requireFacts(t *testing.T, c *client) {
	t.Helper()
	byAgent := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(s.facts)) {
		byAgent[s.facts[name].agent] = append(byAgent[s.facts[name].agent], name)
	}
	for agent, names := range byAgent {
		for batch := range slices.Chunk(names, 1000) {
			var facts []map[string]any
			for _, name := range batch {
				facts = append(facts, map[string]any{"tokens": s.facts[name].tokens, "request_id": name})
			}
			var answer struct{ Facts []models.Fact }
			require.True(t, s.send(t, c, http.MethodPost, agent+"/usage", map[string]any{"facts": facts}, &answer, []int{http.StatusCreated, http.StatusOK}))
			for i, f := range answer.Facts {
				if s.facts[batch[i]].acknowledged {
					require.True(t, f.Replayed, "%s is acknowledged", batch[i])
				}
				s.facts[batch[i]].acknowledged = true
			}
		}
	}
}

// requireReservations repeats unanswered requests that have a key, compares all reservations with
// the recorded ones, repeats doubtful settlements and releases, and releases reservations whose
// response was lost.
func (s *spending) requireReservations(t *testing.T, c *client) {
	t.Helper()
	withoutKey := 0
	for _, a := range s.asked {
		if a.key == "" {
			withoutKey++
		} else {
			require.NotEmpty(t, s.reserve(t, c, a))
		}
	}
	s.asked = nil
	all := map[string]models.Reservation{}
	for n := range spenders {
		for next := "/api/v1/agents/" + spender(n) + "/reservations?limit=1000"; next != ""; {
			page := get[struct {
				Reservations []models.Reservation
				NextCursor   string `json:"next_cursor"`
			}](t, c, next)
			for _, r := range page.Reservations {
				all[r.ID] = r
			}
			if next = ""; page.NextCursor != "" {
				next = "/api/v1/agents/" + spender(n) + "/reservations?limit=1000&cursor=" + page.NextCursor
			}
		}
	}
	for id, h := range s.held {
		r, there := all[id]
		require.True(t, there, "%s is acknowledged", id)
		require.Equal(t, h.tokens, r.Tokens)
		if h.doubtful && r.State == models.ReservationHeld {
			require.True(t, s.end(t, c, id, h.state, h.settled))
			delete(all, id)
			continue
		}
		require.Equal(t, h.state, r.State)
		if h.doubtful {
			require.True(t, s.end(t, c, id, h.state, h.settled), "a repetition has the same result")
		}
		if h.state == models.ReservationSettled {
			require.Equal(t, h.settled, *r.SettledTokens)
		}
		delete(all, id)
	}
	lostGrants := 0
	for id, r := range all {
		if r.State == models.ReservationHeld { // otherwise released in an earlier round
			lostGrants++
			require.True(t, s.send(t, c, http.MethodDelete, r.AgentID+"/reservations/"+id, nil, nil, []int{http.StatusNoContent}))
		}
	}
	require.LessOrEqual(t, lostGrants, withoutKey, "only requests without a key may be granted unnoticed")
	s.lostGrants += lostGrants
}
