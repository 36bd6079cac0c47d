package app_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	v5 "comet/internal/wire/v5"
)

// v5JobAgent runs jobs over PROTOCOL_V5 and reconnects when its connection breaks. As the protocol
// requires, it stores its results by CTX, TID and DEPTH, and sends a result until it is
// acknowledged.
type v5JobAgent struct {
	*jobRunner

	dial                func(context.Context) (v5Conn, error)
	token               string
	concurrency, number int
	results             map[string]v5.Message // by task
	unacked             map[string]bool       // results without an acknowledgement
}

// runV5Agent runs an agent that speaks PROTOCOL_V5 until the test ends.
func (j *jobRunner) runV5Agent(t *testing.T, dial func(context.Context) (v5Conn, error), token string, concurrency int) {
	t.Helper()
	a := &v5JobAgent{jobRunner: j, dial: dial, token: token, concurrency: concurrency, results: map[string]v5.Message{}, unacked: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			a.serveConnection(ctx)
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

// serveConnection serves one connection until it breaks.
func (a *v5JobAgent) serveConnection(ctx context.Context) {
	conn, err := a.dial(ctx)
	if err != nil {
		return
	}
	defer conn.close()
	defer context.AfterFunc(ctx, conn.close)()
	if conn.send(fmt.Sprintf("M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=job;concurrency=%d;token=%s", a.concurrency, a.token)) != nil {
		return
	}
	for {
		text, err := conn.next()
		if err != nil {
			return
		}
		m, err := v5.Parse(text)
		if err != nil {
			continue
		}
		for _, reply := range a.handle(m) {
			if a.send(conn, reply) != nil {
				return
			}
		}
	}
}

// handle returns the replies to a message.
func (a *v5JobAgent) handle(m v5.Message) (all []v5.Message) {
	key := fmt.Sprintf("%s %s %d", m.Context, m.Task, m.Depth)
	switch _, joined := m.Data.Get("id"); {
	case m.Type == v5.Ack && joined:
		for key := range a.unacked {
			all = append(all, a.results[key])
		}
	case m.Type == v5.Ack || m.Type == v5.Failure:
		delete(a.unacked, key)
	case m.Type == v5.Request:
		result, known := a.results[key]
		if !known {
			a.runs.Add(1)
			all = append(all, v5Reply(m, v5.Update, v5.Running, "progress=50%;step=half"))
			n, _ := m.Data.Get("n")
			result = v5Reply(m, v5.Success, v5.Done, "job "+n)
			if left, ok := m.Budget.Tokens(); ok {
				result.Budget = v5.NewBudget(int64(left) - a.tokens)
			}
			a.results[key] = result
		}
		a.unacked[key] = true
		all = append(all, result)
	}
	return all
}

func (a *v5JobAgent) send(conn v5Conn, m v5.Message) error {
	a.number = a.number%v5.MaxNumber + 1
	m.Number = a.number
	text, err := m.Format()
	if err != nil {
		return err
	}
	return conn.send(text)
}

// starters returns functions that start an agent: the package agent, and PROTOCOL_V5 on a WebSocket
// and over TCP.
func (j *jobRunner) starters() map[string]func(t *testing.T, url, tcpAddress, token string, concurrency int) {
	return map[string]func(*testing.T, string, string, string, int){
		"envelope": func(t *testing.T, url, _, token string, concurrency int) {
			t.Helper()
			j.runAgent(t, url, token, concurrency)
		},
		"websocket": func(t *testing.T, url, _, token string, concurrency int) {
			t.Helper()
			j.runV5Agent(t, overWebSocket(url, token), token, concurrency)
		},
		"tcp": func(t *testing.T, _, tcpAddress, token string, concurrency int) {
			t.Helper()
			j.runV5Agent(t, func(ctx context.Context) (v5Conn, error) { return dialV5TCP(ctx, tcpAddress) }, token, concurrency)
		},
	}
}

// overWebSocket returns a function that opens a WebSocket for PROTOCOL_V5.
func overWebSocket(url, token string) func(context.Context) (v5Conn, error) {
	return func(ctx context.Context) (v5Conn, error) { return dialV5WebSocket(ctx, url, token) }
}

// doneBy returns the number of succeeded attempts by agent.
func (c *charges) doneBy() map[string]int {
	out := map[string]int{}
	for _, d := range c.tasks {
		for _, a := range d.Attempts {
			if a.AgentID != nil && a.State == "succeeded" {
				out[*a.AgentID]++
			}
		}
	}
	return out
}

// v5Listen returns the setting for the address of the TCP listener.
func v5Listen(address string) setting { return env("COMET_TRANSPORT_V5_LISTEN=" + address) }
