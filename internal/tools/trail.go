package tools

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"comet/internal/lifecycle"
	"comet/models"
	"comet/store"
)

const (
	// writeEvery is how long the end of a call waits to be written at most, writeMany how
	// many are written without waiting for that.
	writeEvery, writeMany = 100 * time.Millisecond, 500
	// mostWaiting is how many may wait; who ends a call then waits too.
	mostWaiting = 20_000
	// mostNews is how many other events may wait; further ones are lost.
	mostNews = 2000
	// mostSaid is how long what was said in calls that wait may be together, in bytes, and
	// writeAgain the rest after a failure.
	mostSaid   = 64 << 20
	writeAgain = time.Second
	// lastWords is how long the last calls may take to be written.
	lastWords = 10 * time.Second
)

// trail keeps who called what, and tells the ledger what it cost. Both are written together
// with those of other calls, a moment after the call: a call waits for no transaction. A
// process that is killed loses what it still held, some tenths of a second of it; what the
// ledger had reserved for them stays reserved until that expires.
type trail struct {
	store *store.Store
	meter *meter
	count *tokenCounter
	log   *slog.Logger
	loop  *lifecycle.Loop
	mu    sync.Mutex
	room  *sync.Cond
	// open is how many calls are not written yet, those that are being written too, and size
	// how long what was said in those that wait is, in bytes.
	open, size int
	waiting    []ended
	news       []models.EventDraft
	many       chan struct{} // has one when a batch is there
	writing    chan struct{} // has one from who writes
}

func newTrail(s *store.Store, m *meter, log *slog.Logger) *trail {
	t := &trail{store: s, meter: m, count: newTokenCounter(), log: log, many: make(chan struct{}, 1), writing: make(chan struct{}, 1)}
	t.room = sync.NewCond(&t.mu)
	t.loop = lifecycle.NewLoop(t.run)
	return t
}

// Start implements lifecycle.Service.
func (t *trail) Start(ctx context.Context) error { return t.loop.Start(ctx) }

// Stop implements lifecycle.Service: what waits is written first, and what the ledger holds
// is given back.
func (t *trail) Stop(ctx context.Context) error {
	if err := t.loop.Stop(ctx); err != nil {
		return err
	}
	if err := t.flush(ctx, true); err != nil {
		return err
	}
	return t.flush(ctx, true) // what an account had to keep back while it repeated itself
}

// add has a call written soon. Where too many wait already it waits for room: no call is
// lost.
func (t *trail) add(e ended) {
	t.mu.Lock()
	for t.open >= mostWaiting {
		t.room.Wait()
	}
	t.open++
	size := e.size()
	if large := t.size+size > mostSaid; large { // who said so much counts it himself
		t.mu.Unlock()
		t.price(&e)
		t.mu.Lock()
		size = 0
	}
	t.waiting, t.size = append(t.waiting, e), t.size+size
	n := len(t.waiting)
	t.mu.Unlock()
	if n == writeMany {
		select {
		case t.many <- struct{}{}:
		default:
		}
	}
}

func (t *trail) run(ctx context.Context) {
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-t.many:
		}
		if err := t.flush(context.WithoutCancel(ctx), false); err != nil {
			t.log.Warn("calls of tools could not be written; they are kept", "error", err)
			rest := time.NewTimer(writeAgain)
			select {
			case <-ctx.Done():
			case <-rest.C:
			}
			rest.Stop()
		}
	}
}

// Flush writes what waits, so that who reads finds it.
func (t *trail) Flush(ctx context.Context) error { return t.flush(ctx, false) }

// flush writes what waits; all is also to give back what the ledger holds.
func (t *trail) flush(ctx context.Context, all bool) error {
	ctx, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	select {
	case t.writing <- struct{}{}:
		defer func() { <-t.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	batch, news := t.take()
	calls := make([]models.ToolCall, len(batch))
	for i := range batch {
		t.price(&batch[i])
		calls[i] = batch[i].ToolCall
		news = append(news, eventOf(calls[i]))
	}
	accounts := t.meter.due(ctx, all)
	if len(calls) == 0 && len(accounts) == 0 && len(news) == 0 {
		return nil
	}
	err := t.write(ctx, calls, news, accounts)
	switch {
	case err == nil:
		release(accounts, true)
		t.written(len(batch))
		return nil
	case !t.itsOwnFault(ctx, err):
		release(accounts, false)
		t.putBack(batch, news[:len(news)-len(batch)])
		return err
	}
	t.log.Warn("one of the calls or accounts cannot be written; each is written for itself", "error", err)
	return t.apart(ctx, batch, news[:len(news)-len(batch)], accounts)
}

// tell has an event written with the next calls. It is for news that nobody waits for: where
// too many wait already, it is left out.
func (t *trail) tell(e models.EventDraft) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.news) < mostNews {
		t.news = append(t.news, e)
	}
}

// price counts what was said in a call, and has its payer pay that.
func (t *trail) price(e *ended) {
	if e.texts == nil {
		return
	}
	e.Tokens = t.count.count(e.texts...)
	if e.payer != nil {
		e.payer.count(e.charged, e.Tokens)
	}
	e.charged, e.texts = e.Tokens, nil
}

func (t *trail) take() ([]ended, []models.EventDraft) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out, news := t.waiting, t.news
	t.waiting, t.news, t.size = nil, nil, 0
	return out, news
}

// written makes room for as many calls as are written.
func (t *trail) written(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open -= n
	t.room.Broadcast()
}

// putBack has what could not be written wait again, before what came since.
func (t *trail) putBack(batch []ended, news []models.EventDraft) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting, t.news = append(batch, t.waiting...), append(news, t.news...)
}
