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
	emit := func(out wire.Message) error {
		out.To = to
		text, err := p.sign(ctx, out)
		if err != nil {
			return err
		}
		return send(text)
	}
	for seq, asked := int64(0), 0; ; {
		if seq, err = p.sendPartials(ctx, t, seq, emit); err != nil {
			return err
		}
		if t.Task.State.Ended() {
			out, _, err := p.end(ctx, t, to, 0)
			if err != nil {
				return err
			}
			return emit(out)
		}
		if t.Task.WaitingFor == models.WaitForReply && t.Task.Questions > asked {
			out, err := p.question(ctx, t)
			if err == nil && out.Body != nil {
				asked, err = t.Task.Questions, emit(out)
			}
			if err != nil {
				return err
			}
		}
		next, err := p.Work.WaitForChange(ctx, tokenID, id, t.Task.Version, idleTime)
		if err = cmp.Or(err, ctx.Err()); err != nil { // also with too many waiting requests
			return err
		}
		if next.Version == t.Task.Version {
			err = idle()
		}
		if t.Task = next; err != nil {
			return err
		}
	}
}

// sendPartials sends the partial results after a number and returns the number of the last one.
func (p *Protocol) sendPartials(ctx context.Context, t task, seq int64, emit func(wire.Message) error) (int64, error) {
	for {
		found, err := p.Work.Partials(ctx, t.Task.ID, seq, streamPage)
		for i := 0; err == nil && i < len(found); i++ {
			if err = emit(partialOf(t, found[i].Seq, found[i].Data)); err == nil {
				seq = found[i].Seq
			}
		}
		if err != nil || len(found) < streamPage {
			return seq, err
		}
	}
}
