package bench

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"

	"comet/models"
)

// ledgerCallers are the clients of an API that records usage.
type ledgerCallers struct {
	callers []*caller
	prefix  string // of the path
	agents  []string
	last    *atomic.Int64 // numbers the facts
}

func (h *testServer) ledgerCallers(b *testing.B, prefix string, agents []string, last *atomic.Int64) *ledgerCallers {
	b.Helper()
	return &ledgerCallers{callers: newCallers(b, h.chain, writers), prefix: prefix, agents: agents, last: last}
}

const (
	ours = "/api/v1/agents/"
	raw  = "/bench/raw/agents/"
)

// agent spreads the facts over the agents; consecutive facts go to distant agents.
func (s *ledgerCallers) agent(n int64) string { return s.agents[n*37%int64(len(s.agents))] }

// recorded is a subject that records one fact per call; named adds a request_id.
func (s *ledgerCallers) recorded(name string, named bool) *subject {
	return &subject{name: name, callers: writers, slice: writeSlice, do: func(c, _ int) error {
		n := s.last.Add(1)
		body := fmt.Appendf(nil, `{"tokens":1250,"model":"gpt-5-mini","kind":"completion","task_id":"task-%09d"`, n)
		if named {
			body = fmt.Appendf(body, `,"request_id":"request-%09d"`, n)
		}
		_, err := s.post(c, 201, s.agent(n)+"/usage", append(body, '}'))
		return err
	}}
}

// settled is a subject that reserves tokens and settles them.
func (s *ledgerCallers) settled(name string) *subject {
	return &subject{name: name, callers: writers, slice: writeSlice, do: func(c, _ int) error {
		n := s.last.Add(1)
		reservations := s.agent(n) + "/reservations"
		answer, err := s.post(c, 201, reservations, []byte(`{"tokens":2000}`))
		if err != nil {
			return err
		}
		id, err := idOf(answer)
		if err != nil {
			return err
		}
		_, err = s.post(c, 200, reservations+"/"+id+"/settle", []byte(`{"tokens":1730,"model":"gpt-5-mini","kind":"completion"}`))
		return err
	}}
}

func (s *ledgerCallers) post(c, status int, path string, body []byte) ([]byte, error) {
	got, answer, err := s.callers[c].exchange(post(s.prefix+path, adminToken, body))
	if err == nil && got != status {
		err = fmt.Errorf("%d %s", got, answer)
	}
	return answer, err
}

// idOf returns the id, the first member of a response.
func idOf(answer []byte) (string, error) {
	rest, found := bytes.CutPrefix(answer, []byte(`{"id":"`))
	id, _, ended := bytes.Cut(rest, []byte(`"`))
	if !found || !ended {
		return "", fmt.Errorf("no id: %s", answer)
	}
	return string(id), nil
}

// allAgents returns the ids of all agents of a tree.
func allAgents(t tree) []string {
	return t.all(models.LevelOrchestrator, models.LevelSpecialist, models.LevelAssistant)
}
