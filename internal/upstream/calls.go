package upstream

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// calls are the requests that run in a session.
type calls struct {
	mu            sync.Mutex
	last          int
	running       map[string]*call // by progress token
	openQuestions int              // questions that are being put
}

// call is one of them.
type call struct {
	CallOptions
	session *session
	token   string
	timeout time.Duration
	cancel  context.CancelFunc
	stop    []func() bool // what would cancel it

	mu        sync.Mutex
	timer     *time.Timer
	remaining time.Duration // while the clock stands
	startedAt time.Time     // of the clock
	paused    int
	expired   bool
	done      bool
}

// begin registers a request. runs is its context: it ends with ctx, with the session and
// when the time is over, but not when the request has returned, since a connection must
// be read to its end to be of use again.
func (s *session) begin(ctx context.Context, o *CallOptions) (c *call, runs context.Context, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, newError(KindCancelled, s.launch.ID, "was not asked: the caller has gone").withCause(err)
	}
	c = &call{session: s, timeout: s.launch.timeout()}
	if o != nil {
		c.CallOptions = *o
		c.timeout = defaultDuration(o.Timeout, c.timeout)
	}
	if !s.calls.add(c) {
		return nil, nil, newError(KindBusy, s.launch.ID, "has %d requests running", MaxCalls)
	}
	runs, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	c.stop = []func() bool{context.AfterFunc(ctx, c.cancel), context.AfterFunc(s.life, c.cancel)}
	c.remaining = c.timeout
	c.mu.Lock()
	defer c.mu.Unlock()
	c.startTimer()
	return c, runs, nil
}

func (t *calls) add(c *call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.running) >= MaxCalls {
		return false
	}
	if t.running == nil {
		t.running = map[string]*call{}
	}
	t.last++
	c.token = "c" + strconv.Itoa(t.last)
	t.running[c.token] = c
	return true
}

// startTimer lets the clock run; c.mu is held.
func (c *call) startTimer() {
	c.startedAt = time.Now()
	c.timer = time.AfterFunc(c.remaining, c.expire)
}

func (c *call) expire() {
	c.mu.Lock()
	expired := c.paused == 0 && !c.done
	c.expired = c.expired || expired
	c.mu.Unlock()
	if expired {
		c.cancel()
	}
}

// pause stops the clock until resume is called.
func (c *call) pause() (resume func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused++; c.paused == 1 {
		c.timer.Stop()
		c.remaining = max(c.remaining-time.Since(c.startedAt), time.Second)
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.paused--; c.paused == 0 && !c.done {
			c.startTimer()
		}
	}
}

func (c *call) hasExpired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.expired
}

// finish ends the call. lingers leaves its context a while longer.
func (c *call) finish(lingers bool) {
	t := &c.session.calls
	t.mu.Lock()
	delete(t.running, c.token)
	t.mu.Unlock()
	c.mu.Lock()
	c.done = true
	c.timer.Stop()
	c.mu.Unlock()
	for _, stop := range c.stop {
		stop()
	}
	if lingers {
		time.AfterFunc(drainTimeout, c.cancel)
	} else {
		c.cancel()
	}
}

// meta is what goes along with each round of the request.
func (c *call) meta() mcp.Meta {
	meta := forwardableMeta(c.Meta)
	if c.Progress != nil {
		meta["progressToken"] = c.token
	}
	return meta
}
