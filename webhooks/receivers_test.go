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

	"comet/internal/events"
	"comet/internal/testkit"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
	"comet/webhooks"
)

const (
	// brief is the timeout of attempts in this test. A busy machine may exceed it although
	// the receiver does not; that is one more failed attempt and changes nothing else.
	brief    = 500 * time.Millisecond
	noAnswer = "there was no answer within 500ms"
	// slowness is how long the slow receiver takes.
	slowness = 350 * time.Millisecond

	agents, wave, waves = 6, 18 / costly, 3
)

// TestReceiversOfEveryKind runs receivers that fail in different ways at the same time, with
// two replicas where the database allows it. Each gets every event that it can get.
func TestReceiversOfEveryKind(t *testing.T) {
	testkit.SkipIfShort(t, "it makes thousands of deliveries to receivers that fail")
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		opts := options()
		opts.Timeout, opts.Random, opts.Poll = brief, spread(1), 5*time.Millisecond
		r := newRun(t, db, opts)
		g := addReceivers(t, r)
		watcher := receive(t, nil)
		watching := r.hook(t, watcher.URL, func(d *webhooks.WebhookDraft) { d.Events = []models.EventType{events.WebhookDisabled} })
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

		for _, p := range r.receivers {
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
// event, created at the commit of the event, with attempts at the times of the schedule.
func (p *subscriber) requireOrderlyHistory(t *testing.T) {
	t.Helper()
	require.Empty(t, p.wrong)
	histories, owed := p.histories(t), p.owed()
	if p.name != "gone" {
		require.Len(t, histories, len(owed))
	}
	ids := map[string]bool{}
	for l, h := range histories {
		require.True(t, p.subscribed(l))
		require.False(t, ids[h.EventID], "it has two facts")
		ids[h.EventID] = true
		if id, received := p.ids[l]; received {
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

// history is the result of a delivery with its attempts.
type history struct {
	models.Delivery
	attempts []models.DeliveryAttempt
}

// histories returns those of the subscriber's deliveries, read once.
func (p *subscriber) histories(t *testing.T) map[label]history {
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

// goingDown are the errors of attempts that began while the receiver stopped to listen: its host closes the
// connections that it has not accepted yet. On a busy machine an attempt may not connect within the timeout.
var goingDown = []string{noAnswer, "the server closed the connection before it answered", "the server reset the connection before it answered"}

// requireSuccesses proves that every receiver that can get an event has it.
func (g *receivers) requireSuccesses(t *testing.T, back time.Time) {
	t.Helper()
	for _, p := range []*subscriber{g.healthy, g.flaky, g.ordered, g.resetting, g.down, g.slow, g.busy} {
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
	missed, refused := 0, 0
	for l, h := range g.down.histories(t) {
		if l.N < wave {
			continue
		}
		missed++
		if strings.Contains(h.attempts[0].Error, "refused") {
			refused++
		} else {
			require.Contains(t, goingDown, h.attempts[0].Error, l)
		}
		require.False(t, h.attempts[len(h.attempts)-1].At.Before(back), l)
	}
	require.Equal(t, agents*2*wave, missed)
	require.Positive(t, refused)
}

// requireFailures checks that the attempts show the cause of each failure.
func (g *receivers) requireFailures(t *testing.T) {
	t.Helper()
	for _, c := range []struct {
		*subscriber
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
				others := []string{"", noAnswer}
				if c.subscriber == g.down {
					others = append(others, goingDown...)
				}
				require.Contains(t, others, a.Error, "%s: %v", c.name, l)
			}
			require.GreaterOrEqual(t, met, c.least, "%s: %v: %+v", c.name, l, h.attempts)
		}
	}
	for _, p := range []*subscriber{g.healthy, g.flaky, g.ordered, g.slow, g.redirecting, g.busy} {
		for l, h := range p.histories(t) {
			require.LessOrEqual(t, p.received[l], len(h.attempts), "%s: every request at %v is an attempt", p.name, l)
		}
	}
	g.requireShareOfFailures(t)
	require.Zero(t, g.elsewhere.Load(), "redirects are not followed")
	require.True(t, slices.ContainsFunc(collect(g.slow.histories(t)), func(a models.DeliveryAttempt) bool {
		return a.Error == "" && a.DurationMS >= slowness.Milliseconds()
	}), "a response in time is a success")
}

func collect(histories map[label]history) (all []models.DeliveryAttempt) {
	for _, h := range histories {
		all = append(all, h.attempts...)
	}
	return all
}

// requireShareOfFailures proves that the flaky receiver was one: as many requests as
// fail had to be repeated.
func (g *receivers) requireShareOfFailures(t *testing.T) {
	t.Helper()
	failed := 0
	for _, l := range g.flaky.owed() {
		tries := 1
		for fails("flaky", sight{l, tries}) {
			tries++
		}
		failed += tries - 1
		require.GreaterOrEqual(t, g.flaky.received[l], tries, l)
	}
	require.Greater(t, failed, agents*wave*waves/4)
}

// requireGone proves that 410 disables a webhook, with one event.
func (g *receivers) requireGone(t *testing.T, watching string, requests int) {
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
	require.Equal(t, events.WebhookDisabled, full.Type)
	require.JSONEq(t, `{"id":"`+hook.ID+`","origin":"`+hook.URL+`","description":"`+hook.Description+`","agent_id":null,"reason":"the server answered 410 Gone","failing_since":null}`, string(full.Data))
}

// requireOrder proves that no agent's later event was sent before an earlier one had
// succeeded or died.
func (g *receivers) requireOrder(t *testing.T) {
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

// requireRevival checks that dead deliveries can be redelivered once the receiver works again.
func (g *receivers) requireRevival(t *testing.T) {
	t.Helper()
	g.healed.Store(true)
	n, err := g.RedeliverAll(t.Context(), ops(), g.hanging.hook.ID, created(g.begun))
	require.NoError(t, err)
	require.EqualValues(t, len(g.hanging.owed()), n)
	for _, p := range []*subscriber{g.redirecting, g.ordered} {
		dead, err := g.Deliveries(t.Context(), ops(), p.hook.ID, store.DeliveryQuery{State: models.DeliveryDead, Limit: 1000})
		require.NoError(t, err)
		for _, d := range dead {
			_, err := g.Redeliver(t.Context(), ops(), p.hook.ID, d.ID)
			require.NoError(t, err)
		}
	}
	g.finish(t)
	for _, p := range []*subscriber{g.hanging, g.redirecting, g.ordered} {
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
