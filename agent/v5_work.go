package agent

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"comet/internal/wire/envelope"
	"comet/internal/wire/v5"
)

// receiveWork takes an R or X. Its parameters are fetched as the server has them, so that
// references stand for what they mean and numbers are numbers.
func (p *pipes) receiveWork(life context.Context, m v5.Message) {
	k := p.ids(m)
	e := p.requestOf(m, k)
	p.note(k, m)
	p.mu.Lock()
	p.work[e.MessageID] = placeOf(m)
	before, waits := p.reading[k]
	delete(p.work, before.MessageID)
	bare := isBare(m.Data)
	if waits || !bare {
		p.reading[k] = e // the newest is to be answered
	}
	p.mu.Unlock()
	switch {
	case waits:
	case bare:
		p.request(life, e, e.Payload.(envelope.WorkRequest))
	default:
		p.posting.Go(func() { p.fetchWork(life, k, m) })
	}
}

// isBare reports whether a request has no parameters.
func isBare(data v5.Data) bool {
	for pair := range data.Pairs() {
		if !data.Own(pair.Key) || pair.Key == "params" {
			return false
		}
	}
	return true
}

// requestOf is a line as the envelope that it would be.
func (p *pipes) requestOf(m v5.Message, k Key) envelope.Envelope {
	work := envelope.WorkRequest{TaskID: k.Task, WorkType: m.Data.Call(), Parameters: json.RawMessage("{}")}
	if names := p.supported(); work.WorkType == "" && len(names) == 1 {
		work.WorkType = names[0] // a request to one agent need not say
	}
	if n, ok := m.Budget.Tokens(); ok && n < v5.MaxBudget { // which may be more
		work.Hints.MaxTokens = int64(n)
	}
	return envelope.Envelope{
		ProtocolVersion: envelope.Version, MessageID: uuid.New(), From: envelope.Orchestrator, To: envelope.Orchestrator, Timestamp: time.Now(),
		TraceID: p.traceID(m.Context), RequestID: k.Request, Type: envelope.TypeWorkRequest, Payload: work,
	}
}

// note remembers what the newest line about a task says.
func (p *pipes) note(k Key, m v5.Message) {
	t := &talk{head: m, progress: -1}
	if before, ok := p.talks.Get(k.Request); ok {
		before.mu.Lock()
		t.logged = before.logged
		before.mu.Unlock()
	}
	p.talks.Add(k.Request, t)
}

// recall implements speech.
func (p *pipes) recall(k Key) {
	if at, ok := p.placeIn(k.Task); ok {
		p.note(k, v5.Message{Context: at.context, Task: at.task, Depth: at.depth})
	}
}

// fetchWork fetches the parameters of a request and begins it, unless it was taken back.
func (p *pipes) fetchWork(life context.Context, k Key, m v5.Message) {
	parameters, err := p.fetch(life, k.Request, placeOf(m), "params")
	p.mu.Lock()
	e, wanted := p.reading[k]
	delete(p.reading, k)
	if err != nil {
		delete(p.work, e.MessageID)
	}
	p.mu.Unlock()
	switch {
	case !wanted || life.Err() != nil:
	case err != nil: // the task is gone, or comes again
		p.log.Warn("the parameters of a task cannot be read", "ctx", m.Context, "tid", m.Task, "error", err)
	default:
		work := e.Payload.(envelope.WorkRequest)
		work.Parameters = json.RawMessage(parameters)
		e.Payload = work
		p.request(life, e, work)
	}
}

// parcel is the line on its way.
func (l *line) parcel(text []byte) parcel {
	l.id = uuid.New()
	return parcel{id: l.id, request: l.request, data: text, line: l}
}
