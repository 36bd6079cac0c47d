package webhooks_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/internal/testkit/loopback"
	"comet/models"
)

// receivers are the subscribers of a run, each of another kind.
type receivers struct {
	*run
	healthy, flaky, ordered, hanging, gone, resetting, down, slow, redirecting, busy *subscriber

	healed    atomic.Bool  // those that never answered well do from now on
	elsewhere atomic.Int64 // requests at what is redirected to
	outage    *outage
}

// The kinds of the facts, rare ones for receivers at whom each attempt takes long.
func kindOf(l label) models.EventType {
	switch {
	case l.ID == agentID(0) && l.N%30 == 14:
		return events.AgentDeactivated
	case l.N%10 == 5:
		return events.BudgetWarning
	case l.N%2 == 0:
		return events.AgentCreated
	}
	return events.AgentUpdated
}

func everything() []models.EventType {
	return []models.EventType{events.AgentCreated, events.AgentUpdated, events.AgentDeactivated, events.BudgetWarning}
}

func rarely() []models.EventType { return []models.EventType{events.BudgetWarning} }

func addReceivers(t *testing.T, r *run) *receivers {
	t.Helper()
	g := &receivers{run: r}
	g.healthy = r.join(t, "healthy", everything(), models.OrderingNone, func(w http.ResponseWriter, _ *http.Request, s sight) {
		g.healthy.say(w, s, http.StatusOK)
	})
	g.flaky = r.join(t, "flaky", everything(), models.OrderingNone, func(w http.ResponseWriter, _ *http.Request, s sight) {
		g.flaky.say(w, s, statusOf(!fails("flaky", s)))
	})
	g.ordered = r.join(t, "ordered", everything(), models.OrderingAgent, func(w http.ResponseWriter, _ *http.Request, s sight) {
		g.ordered.say(w, s, statusOf(g.healed.Load() || s.label != poison() && !fails("ordered", s)))
	})
	g.gone = r.join(t, "gone", everything(), models.OrderingNone, func(w http.ResponseWriter, _ *http.Request, s sight) {
		g.gone.say(w, s, http.StatusGone)
	})
	g.addSlowReceivers(t)
	g.addBreakingReceivers(t)
	g.addRejectingReceivers(t)
	return g
}

func (g *receivers) addSlowReceivers(t *testing.T) {
	t.Helper()
	g.hanging = g.join(t, "hanging", []models.EventType{events.AgentDeactivated}, models.OrderingNone,
		func(w http.ResponseWriter, r *http.Request, s sight) {
			if !g.healed.Load() {
				<-r.Context().Done()
				return
			}
			g.hanging.say(w, s, http.StatusOK)
		})
	g.slow = g.join(t, "slow", rarely(), models.OrderingNone, func(w http.ResponseWriter, r *http.Request, s sight) {
		select {
		case <-time.After(slowness):
		case <-r.Context().Done():
		}
		g.slow.say(w, s, http.StatusNoContent)
	})
}

// addBreakingReceivers adds a receiver that resets the first three connections with an event
// without reading the body, and a receiver that is down for some time.
func (g *receivers) addBreakingReceivers(t *testing.T) {
	t.Helper()
	g.resetting = g.newSubscriber("resetting", everything(), func(w http.ResponseWriter, _ *http.Request, s sight) { g.resetting.say(w, s, http.StatusOK) })
	var mu sync.Mutex
	resets := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		resets[r.Header.Get("webhook-id")]++
		n := resets[r.Header.Get("webhook-id")]
		mu.Unlock()
		if n > 3 {
			g.resetting.ServeHTTP(w, r)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	}))
	t.Cleanup(server.Close)
	g.resetting.register(t, server.URL, models.OrderingNone)

	g.down = g.newSubscriber("down", everything(), func(w http.ResponseWriter, _ *http.Request, s sight) { g.down.say(w, s, http.StatusAccepted) })
	g.outage = newOutage(t, g.down)
	g.down.register(t, "http://"+g.outage.addr, models.OrderingNone)
}

func (g *receivers) addRejectingReceivers(t *testing.T) {
	t.Helper()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { g.elsewhere.Add(1) }))
	t.Cleanup(elsewhere.Close)
	g.redirecting = g.join(t, "redirecting", rarely(), models.OrderingNone, func(w http.ResponseWriter, _ *http.Request, s sight) {
		if g.healed.Load() {
			g.redirecting.say(w, s, http.StatusOK)
			return
		}
		w.Header().Set("Location", elsewhere.URL)
		g.redirecting.say(w, s, []int{301, 302, 303, 307, 308}[s.nth%5])
	})
	g.busy = g.join(t, "busy", rarely(), models.OrderingNone, func(w http.ResponseWriter, _ *http.Request, s sight) {
		if s.nth > 2 {
			g.busy.say(w, s, http.StatusOK)
			return
		}
		seconds := []string{"900", "1"}[s.nth-1] // longer, then shorter than the schedule's
		w.Header().Set("Retry-After", seconds)
		g.busy.say(w, s, http.StatusServiceUnavailable)
		_, _ = fmt.Fprint(w, asksFor, seconds)
	})
}

// asksFor begins a response that repeats its Retry-After.
const asksFor = "again in "

func statusOf(well bool) int {
	if well {
		return http.StatusOK
	}
	return http.StatusInternalServerError
}

// poison is a fact that the ordered receiver rejects.
func poison() label { return label{agentID(3), 7} }

// fails reports whether a request is one of the 30 % that fail.
func fails(who string, s sight) bool {
	h := fnv.New64a()
	_, _ = fmt.Fprintln(h, who, s.ID, s.N, s.nth)
	return rand.New(rand.NewPCG(1, h.Sum64())).Float64() < 0.3
}

// outage is a server that goes away and comes back at the same address.
type outage struct {
	handler http.Handler
	addr    string
	server  *httptest.Server
}

// newOutage starts the server.
func newOutage(t *testing.T, handler http.Handler) *outage {
	t.Helper()
	o := &outage{handler: handler, addr: loopback.Address(t)}
	o.end(t)
	t.Cleanup(func() { o.server.Close() })
	return o
}

func (o *outage) begin() { o.server.Close() }

func (o *outage) end(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", o.addr)
	require.NoError(t, err)
	o.server = httptest.NewUnstartedServer(o.handler)
	_ = o.server.Listener.Close()
	o.server.Listener = l
	o.server.Start()
}
