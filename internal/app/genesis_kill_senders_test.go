package app_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"comet/internal/wire/genesis"
)

// newRequest returns a new REQUEST of a peer.
func (g *genesisRun) newRequest(at *roamer, options genesis.Options) *killRequest {
	g.mu.Lock()
	r := &killRequest{n: len(g.requests), id: uuid.NewString(), owner: at.owner, parts: map[int64]killPart{}}
	g.requests = append(g.requests, r)
	g.mu.Unlock()
	var err error
	if r.raw, err = at.peer().request(r.id, "", "job", map[string]int{"n": r.n}, map[string]int{"maxTokens": 50}, options); err != nil {
		g.problem("%v", err)
	}
	return r
}

// errRepeat means that a request must be sent again.
var errRepeat = errors.New("send the request again")

// accept records the acknowledgement of a request.
func (g *genesisRun) accept(r *killRequest, task string) {
	g.acts.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.task != "" && r.task != task {
		g.problems = append(g.problems, fmt.Sprintf("the request %s has the tasks %s and %s", r.id, r.task, task))
	}
	r.task = task
}

// see records a partial result, which must be the next one after number last.
func (g *genesisRun) see(r *killRequest, body genesis.Response, last *int64) {
	g.acts.Add(1)
	var part killPart
	err := json.Unmarshal(body.Data, &part)
	g.mu.Lock()
	defer g.mu.Unlock()
	if seen, known := r.parts[body.Sequence]; err != nil || body.Sequence != *last+1 || known && seen != part {
		g.problems = append(g.problems, fmt.Sprintf("the partial result %d of %s, %s, follows number %d; before, it was %+v", body.Sequence, r.task, body.Data, *last, seen))
	}
	*last = body.Sequence
	r.parts[body.Sequence] = part
}

// read processes the body of a response to a request. It returns whether the task has ended, or errRepeat.
func (g *genesisRun) read(p *genesisPeer, r *killRequest, raw []byte, last *int64) (ended bool, err error) {
	m, err := p.read(raw)
	if err != nil {
		g.problem("%v", err)
		return true, err
	}
	switch body := m.Body.(type) {
	case genesis.Event:
		var ack struct{ OriginalMessageID, TaskID string }
		if err := json.Unmarshal(body.Payload, &ack); err != nil || ack.OriginalMessageID != r.id || ack.TaskID == "" {
			g.problem("the acknowledgement of %s: %s", r.id, raw)
		}
		g.accept(r, ack.TaskID)
	case genesis.Response:
		if body.Status == genesis.Partial {
			g.see(r, body, last)
			return false, nil
		}
		g.end(r, body)
		return true, nil
	case genesis.Failure:
		if isBusy(m, "") {
			g.refuse(body.ErrorCode)
			return false, errRepeat
		}
		g.problem("the request %s: %s", r.id, raw)
		return true, nil
	}
	return false, nil
}

// end records the result of a request.
func (g *genesisRun) end(r *killRequest, body genesis.Response) {
	var text string
	err := json.Unmarshal(body.Data, &text)
	g.acts.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil || body.Status != genesis.Succeeded || body.RequestID != r.id || r.result != "" && r.result != text {
		g.problems = append(g.problems, fmt.Sprintf("the result of %s was %q: %+v", r.id, r.result, body))
	}
	r.result = text
}

// stream sends requests and reads the stream of each until its end, which resumes when it breaks.
func (g *genesisRun) stream(ctx context.Context, at *roamer) {
	for !g.stopped.Load() && ctx.Err() == nil {
		r := g.newRequest(at, genesis.Options{})
		at.repeat(ctx, func(p *genesisPeer) error { return g.readStream(ctx, p, r) })
	}
}

func (g *genesisRun) readStream(ctx context.Context, p *genesisPeer, r *killRequest) error {
	resp, err := p.Open(ctx, http.MethodPost, "/api/genesis/messages", string(r.raw), "Accept", "text/event-stream")
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	lines, last, data, messages := bufio.NewScanner(resp.Body), int64(0), "data: ", 0
	if resp.StatusCode != http.StatusOK {
		data = "" // a refusal
	} else {
		r.streams++
	}
	for lines.Scan() {
		raw, ok := strings.CutPrefix(lines.Text(), data)
		if !ok {
			continue
		}
		messages++
		ended, err := g.read(p, r, []byte(raw), &last)
		if ended && messages > 1 { // the task ended after the beginning of the stream
			r.complete = true
		}
		if ended || err != nil {
			return err
		}
	}
	return errRepeat
}

// sendOften sends each request several times, at the same time and to several replicas, and loses some responses. Then it waits
// for the result.
func (g *genesisRun) sendOften(ctx context.Context, at *roamer) {
	none := false
	for !g.stopped.Load() && ctx.Err() == nil {
		r := g.newRequest(at, genesis.Options{RequiresResponse: &none})
		var sending sync.WaitGroup
		for n := range 1 + rand.IntN(3) {
			sending.Go(func() {
				lost, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(50))*time.Millisecond)
				defer cancel()
				p := at.peers[n%len(at.peers)]
				if reply, err := p.post(lost, r.raw); err == nil {
					_, _ = g.read(p, r, reply.body, new(int64))
				}
			})
		}
		sending.Wait()
		at.repeat(ctx, func(p *genesisPeer) error {
			for ctx.Err() == nil {
				reply, err := p.post(ctx, r.raw, "Prefer", "wait=20")
				if err != nil {
					return err
				}
				if reply.location != "" {
					g.accept(r, reply.location)
				}
				if ended, err := g.read(p, r, reply.body, new(int64)); ended || err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// publish sends each event twice with the same id, and once with another id: all have the same deduplication id.
func (g *genesisRun) publish(ctx context.Context, at *roamer) {
	for n := 0; !g.stopped.Load() && ctx.Err() == nil; n += 2 {
		name := fmt.Sprintf("e-0-%d", n)
		event := genesis.Event{
			EventType: "order.paid", EventName: "paid", Payload: []byte(`"` + name + `"`), DeliveryGuarantee: genesis.ExactlyOnce, DeduplicationID: name,
			Metadata: genesis.Metadata{SchemaVersion: "1", ContentType: "application/json"},
		}
		first, err := at.peer().sign(uuid.NewString(), "", event)
		second, also := at.peer().sign(uuid.NewString(), "", event)
		if err = errors.Join(err, also); err != nil {
			g.problem("%v", err)
			return
		}
		for _, raw := range [][]byte{first, first, second} {
			at.repeat(ctx, func(p *genesisPeer) error {
				reply, err := p.post(ctx, raw)
				switch {
				case err != nil:
					return err
				case reply.status >= http.StatusInternalServerError:
					return errRepeat
				case reply.status != http.StatusAccepted:
					g.problem("the event %s: %s", name, reply.body)
					return nil
				}
				return g.published(p, name, reply.body)
			})
		}
	}
}

// published records the acknowledgement of an event.
func (g *genesisRun) published(p *genesisPeer, name string, raw []byte) error {
	g.acts.Add(1)
	m, err := p.read(raw)
	if err != nil {
		g.problem("%v", err)
		return nil
	}
	body, _ := m.Body.(genesis.Event)
	var ack struct{ EventID string }
	if err := json.Unmarshal(body.Payload, &ack); err != nil {
		g.problem("%v", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if first := g.events[name]; ack.EventID != "" && first != "" && first != ack.EventID {
		g.problems = append(g.problems, fmt.Sprintf("the event %s has the ids %s and %s", name, first, ack.EventID))
	}
	if g.events[name] == "" {
		g.events[name] = ack.EventID
	}
	return nil
}

// receive lets ada receive events.
func (g *genesisRun) receive(ctx context.Context) {
	g.serve(ctx, g.ada, (*genesisPeer).pollOrStream, nil, func(m genesis.Message, _ func([]byte) error) error {
		body, ok := m.Body.(genesis.Event)
		var name string
		if err := json.Unmarshal(body.Payload, &name); !ok || err != nil {
			g.problem("ada receives %+v", m.Body)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.seen[m.ID] {
			g.repeated++
			return nil
		}
		g.seen[m.ID] = true
		g.effects[name]++
		return nil
	})
}

// serve connects to one replica after the other and processes the messages that arrive.
func (g *genesisRun) serve(ctx context.Context, at *roamer, connect func(*genesisPeer) (genesisConn, error), joined func(send func([]byte) error) error, process func(m genesis.Message, send func([]byte) error) error) {
	at.repeat(ctx, func(p *genesisPeer) error {
		conn, err := connect(p)
		if err != nil {
			return err
		}
		defer conn.close()
		defer context.AfterFunc(ctx, conn.close)()
		if joined != nil {
			if err := joined(conn.send); err != nil {
				return err
			}
		}
		for {
			m, err := conn.next()
			if errors.Is(err, errInvalidGenesis) {
				g.problem("%v", err)
			} else if m.ID != "" { // the server may have the acknowledgement even if it failed
				err = errors.Join(err, process(m, conn.send))
			}
			if err != nil {
				return err
			}
		}
	})
}

// pollOrStream returns a connection over polls or a stream, at random.
func (p *genesisPeer) pollOrStream() (genesisConn, error) {
	if rand.IntN(2) == 0 {
		return p.poll(), nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	resp, err := p.Open(ctx, http.MethodGet, "/api/agent/stream?protocol=genesis&concurrency=8", "")
	if err == nil && resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		err = fmt.Errorf("the stream has the status %d", resp.StatusCode)
	}
	if err != nil {
		cancel()
		return genesisConn{}, err
	}
	lines := bufio.NewScanner(resp.Body)
	return genesisConn{nil, func() (genesis.Message, error) {
		for event := ""; lines.Scan(); {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				event = name
			}
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok || event != "message" {
				continue
			}
			m, err := p.read([]byte(data))
			if err == nil {
				_, _, err = p.do(ctx, http.MethodPost, "/api/agent/inbox/ack", map[string]any{"message_ids": []string{m.ID}})
			}
			return m, err
		}
		return genesis.Message{}, errRepeat
	}, func() {
		cancel()
		_ = resp.Body.Close()
	}}, nil
}

// killBoss is an agent that sends requests and receives their partial results and results on a WebSocket.
type killBoss struct {
	run      *genesisRun
	at       *roamer
	requests map[string]*killRequest // by id
	open     []*killRequest
	received map[string]bool  // the ids of messages
	last     map[string]int64 // the last partial result by request
	ended    sync.Once
}

const bossRequests = 4

func (b *killBoss) serve(ctx context.Context) {
	b.requests, b.received, b.last = map[string]*killRequest{}, map[string]bool{}, map[string]int64{}
	b.run.serve(ctx, b.at, (*genesisPeer).connect, func(send func([]byte) error) error {
		for _, r := range b.open { // sent again, because the server may not have them
			if err := send(r.raw); err != nil {
				return err
			}
		}
		return b.refill(send)
	}, func(m genesis.Message, send func([]byte) error) error {
		return errors.Join(b.receive(m, send), b.refill(send))
	})
}

// refill sends new requests.
func (b *killBoss) refill(send func([]byte) error) error {
	for len(b.open) < bossRequests && !b.run.stopped.Load() {
		r := b.run.newRequest(b.at, genesis.Options{RequiresAck: true, Stream: true})
		r.complete, b.requests[r.id] = true, r
		b.open = append(b.open, r)
		if err := send(r.raw); err != nil {
			return err
		}
	}
	if len(b.open) == 0 {
		b.ended.Do(func() { b.run.ended.Add(1) })
	}
	return nil
}

// receive processes a message about a request. A result may come before partial results: that of a REQUEST which was sent again.
func (b *killBoss) receive(m genesis.Message, send func([]byte) error) error {
	g, about, repeated := b.run, "", b.received[m.ID]
	b.received[m.ID] = true
	var ack struct{ OriginalMessageID, TaskID string }
	switch body := m.Body.(type) {
	case genesis.Event:
		if body.EventType == "task.progress" {
			return nil
		}
		_ = json.Unmarshal(body.Payload, &ack)
		about = ack.OriginalMessageID
	case genesis.Failure:
		about = body.OriginalMessageID
	case genesis.Response:
		about = body.RequestID
	}
	r := b.requests[about]
	if r == nil {
		g.problem("the boss receives %+v", m.Body)
		return nil
	}
	switch body := m.Body.(type) {
	case genesis.Event:
		g.accept(r, ack.TaskID)
	case genesis.Failure:
		if isBusy(m, r.task) {
			g.refuse(body.ErrorCode)
			return send(r.raw)
		}
		g.problem("the request %s: %+v", r.id, m.Body)
	case genesis.Response:
		if body.Status != genesis.Partial {
			g.end(r, body)
			b.open = slices.DeleteFunc(b.open, func(of *killRequest) bool { return of == r })
		} else if last := b.last[r.id]; !repeated {
			g.see(r, body, &last)
			b.last[r.id] = last
		}
	}
	return nil
}
