package genesis

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"comet/internal/protocol"
	wire "comet/internal/wire/genesis"
	"comet/models"
)

// streamPage is how many partial results are read at a time, and idleTime how long a stream waits for a change of its task
// before it sends a comment.
const (
	streamPage = 100
	idleTime   = 15 * time.Second
)

// stream processes a message and sends the messages about its task: the acknowledgement, each partial result in order, and
// the end of the task (Genesis §Request-Stream Pattern). idle is called if nothing was sent for a while; an error of idle or
// send ends the stream. If the message is refused or starts no task, nothing is sent, and stream returns the reply.
func (p *Protocol) stream(ctx context.Context, from protocol.Peer, raw []byte, send func(message []byte) error, idle func() error) (protocol.Reply, error) {
	m, err := p.read(ctx, from, raw)
	if err != nil {
		return p.refuse(ctx, m.Message, err), nil
	}
	reply, err := p.receive(ctx, m, 0)
	if err != nil {
		return p.refuse(ctx, m.Message, err), nil
	}
	_, isRequest := m.Body.(wire.Request)
	id, isTask := strings.CutPrefix(reply.Location, "/api/v1/tasks/")
	if !isRequest || !isTask {
		return reply, nil
	}
	if err := send(reply.Body); err != nil || reply.Status != http.StatusAccepted {
		return protocol.Reply{}, err
	}
	return protocol.Reply{}, p.follow(ctx, m.From, m.by.TokenID, id, send, idle)
}

// follower sends what happens to a task to its requester.
type follower struct {
	*Protocol

	task task
	// partial is the number of the last partial result that was sent, attempt that of the last attempt that its agent has received, and
	// asked contains the number of questions of each task.
	partial int64
	attempt int
	asked   map[string]int
	emit    func(wire.Message) error
}

// follow sends what happens to a task to its requester until it has ended. It keeps neither the message nor the input in memory.
func (p *Protocol) follow(ctx context.Context, to, tokenID, id string, send func([]byte) error, idle func() error) error {
	stored, err := p.Work.TaskWithInput(ctx, id)
	if err != nil {
		return err
	}
	t, err := taskOf(stored)
	if err != nil {
		return err
	}
	t.Input.Parameters, t.Input.Meta, t.meta.Entities, t.meta.Context = nil, nil, nil, nil
	f := &follower{Protocol: p, task: t, asked: map[string]int{}, emit: func(out wire.Message) error {
		out.To = to
		text, err := p.sign(ctx, out)
		if err != nil {
			return err
		}
		return send(text)
	}}
	for {
		if err := f.sendNews(ctx); err != nil {
			return err
		}
		if f.task.Task.State.Ended() {
			out, _, err := p.end(ctx, f.task, to, 0)
			if err != nil {
				return err
			}
			return f.emit(out)
		}
		silent := false
		next, err := p.Work.WaitUntil(ctx, tokenID, id, idleTime, func(t models.Task) bool {
			silent = t.Version == f.task.Task.Version && receivedAttempt(t) <= f.attempt && f.question(ctx, t) == nil
			return !silent
		})
		if err = cmp.Or(err, ctx.Err()); err != nil { // also with too many waiting requests
			return err
		}
		if silent {
			err = idle()
		}
		if f.task.Task = next; err != nil {
			return err
		}
	}
}

// sendNews sends what the requester does not know yet, except the end of the task.
func (f *follower) sendNews(ctx context.Context) error {
	t := f.task.Task
	if attempt := receivedAttempt(t); attempt > f.attempt {
		out, err := f.ack(ctx, f.task.id, t)
		if err == nil {
			f.attempt, err = attempt, f.emit(out)
		}
		if err != nil {
			return err
		}
	}
	if err := f.sendPartials(ctx); err != nil {
		return err
	}
	asking := f.question(ctx, t)
	if asking == nil {
		return nil
	}
	out, err := f.Protocol.question(ctx, f.task, *asking)
	if err == nil && out.Body != nil {
		f.asked[asking.ID], err = asking.Questions, f.emit(out)
	}
	return err
}

// question returns the task, or the subtask, that asks a question which was not sent, nil for none.
func (f *follower) question(ctx context.Context, t models.Task) *models.Task {
	asking, waits, err := f.Work.TaskAwaitingReply(ctx, t)
	if err != nil || !waits || asking.Questions <= f.asked[asking.ID] {
		return nil
	}
	return &asking
}

// sendPartials sends the partial results that were not sent.
func (f *follower) sendPartials(ctx context.Context) error {
	for {
		found, err := f.Work.Partials(ctx, f.task.Task.ID, f.partial, streamPage)
		for i := 0; err == nil && i < len(found); i++ {
			if err = f.emit(partialOf(f.task, found[i].Seq, found[i].Data)); err == nil {
				f.partial = found[i].Seq
			}
		}
		if err != nil || len(found) < streamPage {
			return err
		}
	}
}
