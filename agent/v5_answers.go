package agent

import (
	"errors"

	"github.com/coder/websocket"
	"github.com/google/uuid"

	"comet/internal/wire/v5"
)

// answered hears what became of a line: the first about its task that waits for that.
func (p *pipes) answered(m v5.Message) {
	if n, ok := m.Task.Number(); !ok || n == 0 { // about the agent itself
		if m.Type == v5.Failure {
			p.log.Warn("the server refuses a line", "code", m.Err, "error", string(m.Data))
		}
		return
	}
	l := p.oldest(placeOf(m))
	switch {
	case l == nil:
		p.log.Warn("the server answers what was not said", "line", string(m.Data))
	case m.Type == v5.Failure:
		p.refusedBy(l, m)
	default:
		p.deliver(l, m)
	}
}

// oldest takes the first line about a task that waits for its answer, nil for none.
func (p *pipes) oldest(at place) *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.due[at]
	if len(all) == 0 {
		return nil
	}
	if len(all) == 1 {
		delete(p.due, at)
	} else {
		p.due[at] = all[1:]
	}
	return all[0]
}

// deliver is done with a line. A line that was sent twice has two answers, and the first
// counts.
func (p *pipes) deliver(l *line, m v5.Message) {
	if l.reply != nil {
		select {
		case l.reply <- m:
		default:
		}
	}
	if l.id != uuid.Nil {
		p.outbox.acknowledge([]uuid.UUID{l.id})
	}
}

// refusedBy hears that the server does not take a line. One that it cannot take at the
// moment stays in the outbox and is sent again in a while, and with it those behind it,
// which lack it. Output that is too much is not sent any more.
func (p *pipes) refusedBy(l *line, m v5.Message) {
	switch {
	case m.Err == v5.E30 || m.Err == v5.E31 || m.Err == v5.E99 || isReplay(m):
		p.Agent.log.Warn("the server cannot take a line at the moment", "code", m.Err, "ctx", m.Context, "tid", m.Task, "error", string(m.Data))
		if l.id != uuid.Nil && p.outbox.hold(l.request) {
			p.again()
		}
		return
	case isMissing(m) && p.outbox.isHeld():
		return
	}
	p.Agent.log.Info("the server refuses a line", "code", m.Err, "ctx", m.Context, "tid", m.Task, "error", string(m.Data))
	if l.log && m.Err == v5.E10 {
		p.Agent.mu.Lock()
		for k, j := range p.jobs {
			if k.Request == l.request {
				j.work.deaf.Store(true)
			}
		}
		p.Agent.mu.Unlock()
	}
	p.deliver(l, m)
}

// isHeld reports whether nothing is sent until rewind.
func (o *outbox) isHeld() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.held
}

// endOfLine is why the server has ended a line, where it says so as it closes it.
func endOfLine(err error) error {
	var closed websocket.CloseError
	if errors.As(err, &closed) && closed.Reason == byeReplaced {
		return errReplaced
	}
	return err
}
