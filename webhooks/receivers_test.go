package webhooks_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/models"
	"comet/store/storetest"
)

const (
	// brief is the timeout of the attempts in the run below. A busy machine may miss
	// it where the receiver does not, which is one more failure and nothing else.
	brief    = 500 * time.Millisecond
	noAnswer = "there was no answer within 500ms"
	// slowness is how long the slow receiver takes.
	slowness = 350 * time.Millisecond

	agents, wave, waves = 6, 18 / costly, 3
)

// TestReceiversOfEveryKind: receivers that fail in every way there is get what they
// can get, at the same time, from two replicas where there may be two.
func TestReceiversOfEveryKind(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		opts := options()
		opts.Timeout, opts.Random, opts.Poll = brief, spread(1), 5*time.Millisecond
		r := newRun(t, db, opts)
		g := invite(t, r)
		watcher := receive(t, nil)
		watching := r.hook(t, watcher.URL, func(d *models.WebhookDraft) { d.Events = []models.EventType{models.EventWebhookDisabled} })
		r.start(t)
		if db.Database() != "sqlite" {
			r.replica(t, opts)
		}

		r.emit(t, agents, 0, wave, kindOf)
		r.drive(t, time.Minute)
		g.outage.begin()
		r.emit(t, agents, wave, 2*wave, kindOf)
		r.drive(t, 20*time.Minute)
		r.emit(t, agents, 2*wave, waves*wave, kindOf)
		r.drive(t, 40*time.Minute)
		g.outage.end(t)
		back := db.Now()
		r.finish(t)

		for _, p := range r.parties {
			t.Run(p.name, func(t *testing.T) { p.requireOrderlyHistory(t) })
		}
		t.Run("GetWhatTheyCanGet", func(t *testing.T) { g.requireSuccesses(t, back) })
		t.Run("FailAsTheyDo", func(t *testing.T) { g.requireFailures(t) })
		t.Run("GoneIsGone", func(t *testing.T) { g.requireGone(t, watching.ID, len(watcher.got())) })
		t.Run("OrderedIsOrdered", func(t *testing.T) { g.requireOrder(t) })
		t.Run("DeadIsNotLost", func(t *testing.T) { g.requireRevival(t) })
	})
}

// requireOrderlyHistory proves what holds for every webhook: one delivery for each
// event, heard of as it was committed, tried at the times of the schedule.
func (p *party) requireOrderlyHistory(t *testing.T) {
	t.Helper()
	require.Empty(t, p.wrong)
	histories, owed := p.histories(t), p.owed()
	if p.name != "gone" {
		require.Len(t, histories, len(owed))
	}
	ids := map[string]bool{}
	for l, h := range histories {
		require.True(t, p.hears(l))
		require.False(t, ids[h.EventID], "it has two facts")
		ids[h.EventID] = true
		if id, heard := p.ids[l]; heard {
			require.Equal(t, h.EventID, id)
		}
		requireSchedule(t, h)
	}
}

// requireSchedule compares the times between attempts with the documented ones, a
// tenth more or less, and longer where the receiver asked for it.
func requireSchedule(t *testing.T, d history) {
	t.Helper()
	attempts := d.attempts
	waits := []time.Duration{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 10 * time.Hour,
	}
	require.LessOrEqual(t, len(attempts), 8)
	require.Len(t, attempts, d.Attempts)
	for i, a := range attempts {
		require.Equal(t, i+1, a.Attempt)
		last := i == len(attempts)-1
		require.Equal(t, last && d.State == models.DeliverySucceeded, a.Status/100 == 2, "a success is the last attempt: %+v", attempts)
		if last {
			continue
		}
		least, most := waits[i]*9/10, waits[i]*11/10
		if text, ok := strings.CutPrefix(a.ResponseExcerpt, asksFor); ok {
			seconds, err := strconv.Atoi(text)
			require.NoError(t, err)
			asked := time.Duration(seconds) * time.Second
			least, most = max(least, asked), max(most, asked)
		}
		wait := attempts[i+1].At.Sub(a.At)
		require.GreaterOrEqual(t, wait, least, "after attempt %d: %+v", i+1, attempts)
		require.LessOrEqual(t, wait, most, "after attempt %d: %+v", i+1, attempts)
	}
	if d.State == models.DeliveryDead && attempts[len(attempts)-1].Status != http.StatusGone {
		require.Len(t, attempts, 8)
	}
}

// history is what became of a delivery.
type history struct {
	models.Delivery
	attempts []models.DeliveryAttempt
}

// histories returns those of the party's deliveries, read once.
func (p *party) histories(t *testing.T) map[label]history {
	t.Helper()
	if p.past != nil {
		return p.past
	}
	p.past = map[label]history{}
	for _, d := range p.deliveries(t, p.hook.ID) {
		full, attempts, err := p.Delivery(t.Context(), ops(), p.hook.ID, d.ID)
		require.NoError(t, err)
		var l label
		require.NoError(t, json.Unmarshal(full.Data, &l))
		require.NotContains(t, p.past, l, "it has two deliveries")
		p.past[l] = history{full, attempts}
	}
	return p.past
}

// requireSuccesses proves that everybody who can get an event has it.
func (g *guests) requireSuccesses(t *testing.T, back time.Time) {
	t.Helper()
	for _, p := range []*party{g.healthy, g.flaky, g.ordered, g.resetting, g.down, g.slow, g.busy} {
		histories := p.histories(t)
		for _, l := range p.owed() {
			if p == g.ordered && l == poison() {
				continue
			}
			require.True(t, p.took[l], "%s has not got %v", p.name, l)
			require.Equal(t, models.DeliverySucceeded, histories[l].State, "%s: %v", p.name, l)
		}
		hook, err := g.Get(t.Context(), ops(), p.hook.ID)
		require.NoError(t, err)
		require.True(t, hook.Enabled, p.name)
		require.Nil(t, hook.FailingSince, p.name)
	}
	missed := 0
	for l, h := range g.down.histories(t) {
		if l.N < wave {
			continue
		}
		missed++
		require.Contains(t, h.attempts[0].Error, "refused", l)
		require.False(t, h.attempts[len(h.attempts)-1].At.Before(back), l)
	}
	require.Equal(t, agents*2*wave, missed)
}

// requireFailures proves that each failure is told as what it was.
func (g *guests) requireFailures(t *testing.T) {
	t.Helper()
	for _, c := range []struct {
		*party
		says  string
		least int // how many of these each event met
	}{
		{g.flaky, "the server answered 500 Internal Server Error", 0},
		{g.ordered, "the server answered 500 Internal Server Error", 0},
		{g.hanging, noAnswer, 8},
		{g.resetting, "the server reset the connection before it answered", 1},
		{g.down, "the connection to " + g.outage.addr + " was refused", 0},
		{g.slow, noAnswer, 0},
		{g.redirecting, "redirects are not followed: 30", 6},
		{g.busy, "the server answered 503 Service Unavailable", 1},
		{g.healthy, noAnswer, 0},
	} {
		for l, h := range c.histories(t) {
			met := 0
			for _, a := range h.attempts {
				if strings.HasPrefix(a.Error, c.says) {
					met++
					continue
				}
				require.Contains(t, []string{"", noAnswer}, a.Error, "%s: %v", c.name, l)
			}
			require.GreaterOrEqual(t, met, c.least, "%s: %v: %+v", c.name, l, h.attempts)
		}
	}
	for _, p := range []*party{g.healthy, g.flaky, g.ordered, g.slow, g.redirecting, g.busy} {
		for l, h := range p.histories(t) {
			require.LessOrEqual(t, p.heard[l], len(h.attempts), "%s: every request at %v is an attempt", p.name, l)
		}
	}
	g.requireShareOfFailures(t)
	require.Zero(t, g.elsewhere.Load(), "nobody follows a redirect")
	require.True(t, slices.ContainsFunc(collect(g.slow.histories(t)), func(a models.DeliveryAttempt) bool {
		return a.Error == "" && a.DurationMS >= slowness.Milliseconds()
	}), "who answers in time has answered")
}

func collect(histories map[label]history) (all []models.DeliveryAttempt) {
	for _, h := range histories {
		all = append(all, h.attempts...)
	}
	return all
}

// requireShareOfFailures proves that the flaky receiver was one: as many requests as
// fail had to be repeated.
func (g *guests) requireShareOfFailures(t *testing.T) {
	t.Helper()
	failed := 0
	for _, l := range g.flaky.owed() {
		tries := 1
		for fails("flaky", sight{l, tries}) {
			tries++
		}
		failed += tries - 1
		require.GreaterOrEqual(t, g.flaky.heard[l], tries, l)
	}
	require.Greater(t, failed, agents*wave*waves/4)
}

// requireGone proves that 410 ends a webhook, and that it is told once.
func (g *guests) requireGone(t *testing.T, watching string, requests int) {
	t.Helper()
	hook, err := g.Get(t.Context(), ops(), g.gone.hook.ID)
	require.NoError(t, err)
	require.False(t, hook.Enabled)
	require.Equal(t, "the server answered 410 Gone", hook.DisabledReason)
	require.Equal(t, g.begun, *hook.DisabledAt)
	require.Empty(t, g.gone.took)
	for _, d := range g.deliveries(t, hook.ID) {
		require.Equal(t, g.begun, d.CreatedAt, "nothing is kept for it any more")
	}

	told := g.deliveries(t, watching)
	require.Len(t, told, 1)
	require.Equal(t, 1, requests)
	require.Equal(t, models.DeliverySucceeded, told[0].State)
	full, _, err := g.Delivery(t.Context(), ops(), watching, told[0].ID)
	require.NoError(t, err)
	require.Equal(t, models.EventWebhookDisabled, full.Type)
	require.JSONEq(t, `{"id":"`+hook.ID+`","origin":"`+hook.URL+`","description":"`+hook.Description+`","agent_id":null,"reason":"the server answered 410 Gone","failing_since":null}`, string(full.Data))
}

// requireOrder proves that no agent's later event was sent before an earlier one had
// succeeded or died.
func (g *guests) requireOrder(t *testing.T) {
	t.Helper()
	histories := g.ordered.histories(t)
	require.NotEmpty(t, g.flaky.overtook, "without an order they overtake")
	for l, earlier := range g.ordered.overtook {
		require.Equal(t, poison(), earlier, "%v came before it", l)
	}
	require.Len(t, g.ordered.overtook, wave*waves-poison().N-1, "those that waited for its death")
	require.Equal(t, models.DeliveryDead, histories[poison()].State)
	for l, h := range histories {
		earlier := label{l.ID, l.N - 1}
		if l.N == 0 {
			continue
		}
		ended := histories[earlier].EndedAt
		require.NotNil(t, ended)
		require.False(t, h.attempts[0].At.Before(*ended), "%v was sent at %s, the one before it ended at %s", l, h.attempts[0].At, ended)
	}
}

// requireRevival proves that what is dead can be had once the receiver is well.
func (g *guests) requireRevival(t *testing.T) {
	t.Helper()
	g.healed.Store(true)
	n, err := g.RedeliverSince(t.Context(), ops(), g.hanging.hook.ID, g.begun)
	require.NoError(t, err)
	require.EqualValues(t, len(g.hanging.owed()), n)
	for _, p := range []*party{g.redirecting, g.ordered} {
		dead, err := g.Deliveries(t.Context(), ops(), p.hook.ID, models.DeliveryQuery{State: models.DeliveryDead, Limit: 1000})
		require.NoError(t, err)
		for _, d := range dead {
			_, err := g.Redeliver(t.Context(), ops(), p.hook.ID, d.ID)
			require.NoError(t, err)
		}
	}
	g.finish(t)
	for _, p := range []*party{g.hanging, g.redirecting, g.ordered} {
		require.Empty(t, p.wrong)
		p.past = nil
		histories := p.histories(t)
		require.Len(t, p.took, len(p.owed()))
		for l, h := range histories {
			require.True(t, p.took[l], "%s: %v", p.name, l)
			require.Equal(t, models.DeliverySucceeded, h.State)
			require.Len(t, h.attempts, h.Attempts)
		}
	}
	for _, h := range g.hanging.histories(t) {
		require.GreaterOrEqual(t, len(h.attempts), 9)
		require.Equal(t, http.StatusOK, h.attempts[len(h.attempts)-1].Status)
	}
}
