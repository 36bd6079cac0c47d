package app_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/store/storetest"
)

// killsEnv names the environment variable with the number of kills of a test.
const killsEnv = "COMET_TEST_KILLS"

func kills(t *testing.T) int {
	t.Helper()
	text := os.Getenv(killsEnv)
	switch {
	case text != "":
		n, err := strconv.Atoi(text)
		require.NoError(t, err, killsEnv)
		return n
	case testing.Short():
		return 2
	}
	return 8
}

// TestAcknowledgedAgentsSurviveKill9 kills the server repeatedly while clients create agents on the
// same data. Every acknowledged agent must exist, complete, in a valid tree.
func TestAcknowledgedAgentsSurviveKill9(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(t *testing.T, database setting) {
		data := t.TempDir()
		s := &stream{acknowledged: map[string]draft{}, attempted: map[string]draft{}}
		for round := range kills(t) {
			p := serve(t, data, database)
			c := newClient(t, p.url(t), adminToken(t, data))
			s.requireKept(t, c)
			done := s.flow(t, c, round)
			target := s.count.Load() + 1 + rand.Int64N(600)
			eventually(t, func() bool { return s.count.Load() >= target }, "agents are created")
			p.kill()
			done()
		}
		p := serve(t, data, database)
		c := newClient(t, p.url(t), adminToken(t, data))
		s.requireKept(t, c)
		require.Greater(t, len(s.acknowledged), kills(t))
		t.Logf("%d creates were acknowledged, %d attempted", len(s.acknowledged), len(s.attempted))
		p.stop(t)
	})
}

// stream records the create requests of many clients and their responses.
type stream struct {
	mu           sync.Mutex
	acknowledged map[string]draft
	attempted    map[string]draft
	count        atomic.Int64
}

// flow lets 16 clients create agents until the server is killed; done waits for them.
func (s *stream) flow(t *testing.T, c *client, round int) (done func()) {
	t.Helper()
	var wg sync.WaitGroup
	for k := range 16 {
		wg.Go(func() {
			parent := fmt.Sprintf("s-%d-%d", round, k)
			if !s.create(t, c, specialist(parent)) {
				return
			}
			for i := 0; s.create(t, c, assistant(fmt.Sprintf("a-%d-%d-%d", round, k, i), parent, i)); i++ {
			}
		})
	}
	return wg.Wait
}

// create reports whether the agent was acknowledged; false means that the server is down.
func (s *stream) create(t *testing.T, c *client, d draft) bool {
	t.Helper()
	s.mu.Lock()
	s.attempted[d.ID] = d
	s.mu.Unlock()
	status, body, err := c.do(t.Context(), http.MethodPost, "/api/v1/agents", d)
	if status == 0 && err != nil {
		return false
	}
	if status != http.StatusCreated {
		t.Errorf("%s got status %d: %s", d.ID, status, body)
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acknowledged[d.ID] = d
	s.count.Add(1)
	return true
}

// requireKept checks that every acknowledged agent exists as requested, and no agent that was not
// requested.
func (s *stream) requireKept(t *testing.T, c *client) {
	t.Helper()
	all := c.tree(t)
	for id, d := range s.acknowledged {
		require.Contains(t, all, id, "an acknowledged agent")
		requireKept(t, d, all[id])
	}
	bootstrapped := 0
	for id, a := range all {
		if d, ok := s.attempted[id]; ok {
			requireKept(t, d, a)
			continue
		}
		bootstrapped++
	}
	require.Equal(t, 10, bootstrapped)
	for id := range s.acknowledged { // any one of them
		log := get[struct{ Entries []struct{ Version int } }](t, c, "/api/v1/agents/"+id+"/audit")
		require.Len(t, log.Entries, 1)
		break
	}
}

// TestFirstStartSurvivesKill9 kills first starts at random moments. The next start must be
// complete.
func TestFirstStartSurvivesKill9(t *testing.T) {
	t.Parallel()
	for _, name := range storetest.Databases() {
		for round := range max(2, kills(t)/2) {
			t.Run(fmt.Sprintf("%s/%d", name, round), func(t *testing.T) {
				t.Parallel()
				data, database := filepath.Join(t.TempDir(), "data"), env() // no database is copied into a missing directory
				if name == "postgres" {
					database = env("COMET_DATABASE_URL="+storetest.EmptyPostgres(t), secretKeys(t))
				}
				for range 3 {
					p := serve(t, data, database)
					moment := time.NewTimer(time.Duration(rand.Int64N(int64(150 * time.Millisecond))))
					select {
					case <-moment.C:
					case <-p.exited:
					}
					p.kill()
				}
				p := serve(t, data, database)
				c := newClient(t, p.url(t), adminToken(t, data))
				require.Len(t, c.tree(t), 10)
				p.stop(t)
			})
		}
	}
}
