package app_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"comet/internal/wire/v5"
)

// v5JobAgent does jobs in messages of PROTOCOL_V5, past whatever becomes of its line.
// As the document of the protocol asks, it remembers what it has done by CTX, TID and
// DEPTH, and says a result until it is noted.
type v5JobAgent struct {
	*jobRunner

	dial                func(context.Context) (v5Conn, error)
	token               string
	concurrency, number int
	results             map[string]v5.Message // results
	unacked             map[string]bool       // those that are not noted
}

// runV5Agent runs an agent that speaks PROTOCOL_V5 until its test ends.
func (j *jobRunner) runV5Agent(t *testing.T, dial func(context.Context) (v5Conn, error), token string, places int) {
	t.Helper()
	h := &v5JobAgent{jobRunner: j, dial: dial, token: token, concurrency: places, results: map[string]v5.Message{}, unacked: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			h.serveConnection(ctx)
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// serveConnection holds one line until it breaks.
func (h *v5JobAgent) serveConnection(ctx context.Context) {
	line, err := h.dial(ctx)
	if err != nil {
		return
	}
	defer line.close()
	defer context.AfterFunc(ctx, line.close)()
	if line.send(fmt.Sprintf("M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=job;concurrency=%d;token=%s", h.concurrency, h.token)) != nil {
		return
	}
	for {
		text, err := line.next()
		if err != nil {
			return
		}
		m, err := v5.Parse(text)
		if err != nil {
			continue
		}
		for _, said := range h.handle(m) {
			if h.send(line, said) != nil {
				return
			}
		}
	}
}

// handle returns what is to be said to a message.
func (h *v5JobAgent) handle(m v5.Message) (all []v5.Message) {
	place := fmt.Sprintf("%s %s %d", m.Context, m.Task, m.Depth)
	switch _, joined := m.Data.Get("id"); {
	case m.Type == v5.Ack && joined:
		for place := range h.unacked {
			all = append(all, h.results[place])
		}
	case m.Type == v5.Ack || m.Type == v5.Failure:
		delete(h.unacked, place)
	case m.Type == v5.Request:
		result, known := h.results[place]
		if !known {
			h.runs.Add(1)
			all = append(all, v5Reply(m, v5.Update, v5.Running, "progress=50%;step=half"))
			n, _ := m.Data.Get("n")
			result = v5Reply(m, v5.Success, v5.Done, "job "+n)
			if left, ok := m.Budget.Tokens(); ok {
				result.Budget = v5.NewBudget(int64(left) - h.tokens)
			}
			h.results[place] = result
		}
		h.unacked[place] = true
		all = append(all, result)
	}
	return all
}

func (h *v5JobAgent) send(line v5Conn, m v5.Message) error {
	h.number = h.number%v5.MaxNumber + 1
	m.Number = h.number
	text, err := v5.Format(m)
	if err != nil {
		return err
	}
	return line.send(text)
}

// starters are the ways in which jobs are done: the package agent, and
// PROTOCOL_V5 on a WebSocket and over TCP.
func (j *jobRunner) starters() map[string]func(t *testing.T, url, text, token string, places int) {
	return map[string]func(*testing.T, string, string, string, int){
		"envelope": func(t *testing.T, url, _, token string, places int) {
			t.Helper()
			j.runAgent(t, url, token, places)
		},
		"websocket": func(t *testing.T, url, _, token string, places int) {
			t.Helper()
			j.runV5Agent(t, overWebSocket(url, token), token, places)
		},
		"tcp": func(t *testing.T, _, text, token string, places int) {
			t.Helper()
			j.runV5Agent(t, func(ctx context.Context) (v5Conn, error) { return dialV5TCP(ctx, text) }, token, places)
		},
	}
}

// overWebSocket dials a server's WebSocket for PROTOCOL_V5.
func overWebSocket(url, token string) func(context.Context) (v5Conn, error) {
	return func(ctx context.Context) (v5Conn, error) { return dialV5WebSocket(ctx, url, token) }
}

// doneBy is how many attempts of each agent succeeded.
func (y *charges) doneBy() map[string]int {
	out := map[string]int{}
	for _, d := range y.tasks {
		for _, a := range d.Attempts {
			if a.AgentID != nil && a.State == "succeeded" {
				out[*a.AgentID]++
			}
		}
	}
	return out
}

// v5Listen is a server's setting: where it takes lines over TCP.
func v5Listen(address string) setting { return env("COMET_TRANSPORT_V5_LISTEN=" + address) }
