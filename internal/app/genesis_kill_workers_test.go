package app_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"comet/internal/wire/genesis"
)

// partsWorker is an agent that sends partial results and the result of each job, and repeats what was not acknowledged.
type partsWorker struct {
	run   *genesisRun
	at    *roamer
	known map[string]bool // the ids of the REQUESTs that it has received
	jobs  []*partsJob     // of the worker on a WebSocket

	received atomic.Int64
}

// partsJob is what a worker still has to send about an attempt.
type partsJob struct {
	request  string // the id of the REQUEST
	ids      []string
	messages [][]byte
	burst    bool // all messages at once, and not each one after the acknowledgement of the one before
}

// jobOf returns the job of a REQUEST, nil for a known one.
func (w *partsWorker) jobOf(m genesis.Message) *partsJob {
	body, ok := m.Body.(genesis.Request)
	if f, failed := m.Body.(genesis.Failure); failed {
		w.run.refuse(f.ErrorCode)
		return nil
	}
	if !ok || body.Intent != "job" || w.known[m.ID] {
		if ok && body.Intent != "job" {
			w.run.refuse(body.Intent)
		}
		return nil
	}
	w.known[m.ID] = true
	w.received.Add(1)
	var in struct{ N int }
	var about struct{ Attempt int }
	if err := errors.Join(json.Unmarshal(body.Payload, &in), json.Unmarshal(body.Context, &about)); err != nil {
		w.run.problem("%v", err)
		return nil
	}
	j := &partsJob{request: m.ID, burst: rand.IntN(2) == 0}
	add := func(r genesis.Response) {
		r.RequestID = m.ID
		id := uuid.NewString()
		raw, err := w.at.peers[0].sign(id, m.CorrelationID, r)
		if err != nil {
			w.run.problem("%v", err)
		}
		j.ids, j.messages = append(j.ids, id), append(j.messages, raw)
	}
	for part := range killParts(in.N) {
		add(genesis.Response{Status: genesis.Partial, Data: fmt.Appendf(nil, `{"N":%d,"Attempt":%d,"Part":%d}`, in.N, about.Attempt, part+1)})
	}
	if in.N%9 == 8 && about.Attempt == 1 { // another attempt follows
		add(genesis.Response{Status: genesis.Failed, Error: &genesis.ErrorDetails{Code: "LATER", Message: "not now", Retryable: true}})
	} else {
		add(genesis.Response{Status: genesis.Succeeded, Data: fmt.Appendf(nil, `"job %d"`, in.N), Usage: &genesis.Usage{Tokens: 1}})
	}
	return j
}

// refuse counts a message that had no effect.
func (g *genesisRun) refuse(code string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused[code]++
}

// pending returns the messages that may be sent now.
func (j *partsJob) pending() [][]byte {
	if j.burst {
		return j.messages
	}
	return j.messages[:min(1, len(j.messages))]
}

// runSocket works on a WebSocket. After a new connection it sends everything that was not acknowledged again.
func (w *partsWorker) runSocket(ctx context.Context) {
	var send func([]byte) error
	var failed error
	for _, p := range w.at.peers {
		p.acked = func(ids []string) { failed = errors.Join(failed, w.acknowledged(ids, send)) }
	}
	w.run.serve(ctx, w.at, (*genesisPeer).connect, func(to func([]byte) error) error {
		send, failed = to, nil
		for _, j := range w.jobs {
			for _, raw := range j.pending() {
				if err := send(raw); err != nil {
					return err
				}
			}
		}
		return nil
	}, func(m genesis.Message, _ func([]byte) error) error {
		if j := w.jobOf(m); j != nil {
			w.jobs = append(w.jobs, j)
			for _, raw := range j.pending() {
				failed = errors.Join(failed, send(raw))
			}
		}
		return failed
	})
}

// acknowledged removes messages, and sends the next ones of their jobs.
func (w *partsWorker) acknowledged(ids []string, send func([]byte) error) (err error) {
	for _, j := range w.jobs {
		before := len(j.ids)
		for len(j.ids) > 0 && slices.Contains(ids, j.ids[0]) {
			j.ids, j.messages = j.ids[1:], j.messages[1:]
		}
		w.run.acts.Add(int64(before - len(j.ids)))
		if !j.burst && len(j.ids) < before && len(j.ids) > 0 {
			err = errors.Join(err, send(j.messages[0]))
		}
	}
	w.jobs = slices.DeleteFunc(w.jobs, func(j *partsJob) bool { return len(j.ids) == 0 })
	return err
}

// runHTTP receives requests by polls and streams, and sends each message by a request of its own, some of them twice.
func (w *partsWorker) runHTTP(ctx context.Context) {
	var working sync.WaitGroup
	defer working.Wait()
	w.run.serve(ctx, w.at, (*genesisPeer).pollOrStream, nil, func(m genesis.Message, _ func([]byte) error) error {
		if j := w.jobOf(m); j != nil {
			working.Go(func() { w.post(ctx, j) })
		}
		return nil
	})
}

// post sends the messages of a job.
func (w *partsWorker) post(ctx context.Context, j *partsJob) {
	at := &roamer{peers: w.at.peers}
	for _, raw := range j.messages {
		for range 1 + rand.IntN(2) {
			at.repeat(ctx, func(p *genesisPeer) error {
				reply, err := p.post(ctx, raw)
				switch {
				case err != nil:
					return err
				case reply.status >= http.StatusInternalServerError:
					return errRepeat
				case reply.status != http.StatusAccepted:
					m, _ := p.read(reply.body)
					f, _ := m.Body.(genesis.Failure)
					w.run.refuse(f.ErrorCode)
				}
				w.run.acts.Add(1)
				return nil
			})
		}
	}
}
