package agent

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"

	"comet/internal/wire/envelope"
	"comet/internal/wire/v5"
)

// subprotocolV5 is PROTOCOL_V5 on a WebSocket.
const subprotocolV5 = "v5"

// knownTasks is of how many tasks is remembered what their lines are about. It is more
// than may wait and run at once.
const knownTasks = 8192

// pipes is PROTOCOL_V5. A line names a task by CTX, TID and DEPTH; the envelopes inside of
// this package have ids made of these (ids). Of every line that is about a task the server
// says, in their order, what became of it: U and A ask for that with the word ack.
type pipes struct {
	*Agent
	signer *signer // nil for none

	// talks are what was said of tasks, by the ids of their requests.
	talks *lru.Cache[uuid.UUID, *talk]

	mu     sync.Mutex
	self   v5.Address // what the server calls this agent
	number int        // of the newest message
	// work are requests that were not acknowledged yet, by the ids of their envelopes.
	work map[uuid.UUID]place
	// reading are requests whose parameters are being fetched.
	reading map[Key]envelope.Envelope
	// due are the lines on this connection whose answers have not come, in their order.
	due map[place][]*line
}

// place is what a line names a task by.
type place struct {
	context string
	task    v5.Task
	depth   int
}

func placeOf(m v5.Message) place { return place{m.Context, m.Task, m.Depth} }

// talk is what was said of a task on the wire.
type talk struct {
	mu       sync.Mutex
	head     v5.Message // the R, or X, that came last
	progress int        // as it was told last, -1 for not yet
	step     string
	logged   int // pieces of the log
}

// line is what a line that waits for its answer is about.
type line struct {
	id      uuid.UUID // of its parcel, uuid.Nil for none
	request uuid.UUID
	place   place
	log     bool // it is a piece of the log
	reply   chan v5.Message
}

func newPipes(a *Agent) *pipes {
	talks, _ := lru.New[uuid.UUID, *talk](knownTasks) // fails only for a size that is not positive
	return &pipes{
		Agent: a, signer: newSigner(a.opts.Key), talks: talks, number: rand.IntN(v5.MaxNumber), //nolint:gosec // a number to begin with
		work: map[uuid.UUID]place{}, reading: map[Key]envelope.Envelope{}, due: map[place][]*line{},
	}
}

// orchestrator is the server.
func orchestrator() v5.Address { return v5.Address{Role: v5.Orchestrator, Number: 1} }

// next is who this agent is, and the number of its next message.
func (p *pipes) next() (self v5.Address, number int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.number = p.number%v5.MaxNumber + 1
	return p.self, p.number
}

// hear implements speech.
func (p *pipes) hear(life context.Context, data []byte) error {
	text := strings.Clone(string(data))
	m, err := v5.Parse(text)
	if err != nil {
		p.log.Warn("the server sent what is no line", "error", err)
		return nil
	}
	if err := p.signer.verify(text, m); err != nil {
		return err
	}
	switch {
	case m.Type == v5.Request || m.Type == v5.Handoff:
		p.receiveWork(life, m)
	case m.Type == v5.Update && m.State == v5.Cancelled:
		p.withdraw(m)
	default:
		p.answered(m)
	}
	return nil
}

// withdraw ends work that was taken back.
func (p *pipes) withdraw(m v5.Message) {
	task := p.ids(m).Task
	p.mu.Lock()
	for k, e := range p.reading {
		if k.Task == task {
			delete(p.work, e.MessageID)
			delete(p.reading, k)
		}
	}
	p.mu.Unlock()
	p.takeBack(envelope.Envelope{}, envelope.WorkRequest{TaskID: task})
}

// receipts implements speech: A says that the agent has the work.
func (p *pipes) receipts(ids []uuid.UUID) (all [][]byte) {
	for _, id := range ids {
		p.mu.Lock()
		at, known := p.work[id]
		delete(p.work, id)
		p.mu.Unlock()
		if !known { // it needs no answer
			continue
		}
		text, err := p.about(v5.Message{Type: v5.Ack, Task: at.task, Context: at.context, Depth: at.depth, State: v5.Running, Data: "ack"})
		if err != nil {
			p.log.Error("a line cannot be written", "error", err)
			continue
		}
		p.expect(&line{place: at})
		all = append(all, text)
	}
	return all
}

// about writes a line about a task.
func (p *pipes) about(m v5.Message) ([]byte, error) {
	m.From, m.Number = p.next()
	m.To = orchestrator()
	text, err := v5.Format(m)
	return []byte(text), err
}

// expect notes that the answer to a line is to come.
func (p *pipes) expect(l *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due[l.place] = append(p.due[l.place], l)
}

// seal implements speech.
func (p *pipes) seal(data []byte) ([]byte, error) {
	if p.signer == nil {
		return data, nil
	}
	text, err := p.signer.sign(string(data))
	return []byte(text), err
}

// sending implements speech.
func (p *pipes) sending(sent parcel) { p.expect(sent.line) }

// payloads implements speech: parcels cuts what is too long.
func (p *pipes) payloads(out answer, request envelope.WorkRequest, _ envelope.WorkStatus) []envelope.Payload {
	all := out.payloads(request, envelope.WorkStatus{})
	if result, ok := all[len(all)-1].(envelope.WorkResult); ok {
		result.Output = out.Output
		return []envelope.Payload{result}
	}
	return all
}
