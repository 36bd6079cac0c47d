package mcp

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// taskQuestions has the open questions of calls that have become tasks and run in this process.
type taskQuestions struct {
	mu     sync.Mutex
	rounds map[string][]*questionRound // by task
}

// questionRound has questions that are answered together.
type questionRound struct {
	question
	names   map[string]string // of the open questions, by key
	answers mcp.InputResponseMap
}

// add adds questions of a task, and removes those that were withdrawn. Their keys are never used again.
func (a *taskQuestions) add(task string, q question) {
	round := &questionRound{question: q, names: map[string]string{}, answers: mcp.InputResponseMap{}}
	for name := range q.requests {
		round.names[name+"-"+rand.Text()] = name
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rounds[task] = append(slices.DeleteFunc(a.rounds[task], func(old *questionRound) bool { return old.isWithdrawn() }), round)
}

// requestsOf returns the open questions of a task, by key.
func (a *taskQuestions) requestsOf(task string) mcp.InputRequestMap {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := mcp.InputRequestMap{}
	for _, round := range a.rounds[task] {
		for key, name := range round.names {
			if !round.isWithdrawn() {
				out[key] = round.requests[name]
			}
		}
	}
	return out
}

// answer passes the responses to open questions on when a round has all of them. It ignores other responses. If one of
// them is invalid, none has an effect.
func (a *taskQuestions) answer(task string, responses map[string]json.RawMessage) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	decoded := mcp.InputResponseMap{}
	for _, round := range a.rounds[task] {
		for key, name := range round.names {
			raw, answered := responses[key]
			if !answered {
				continue
			}
			response, err := responseTo(round.requests[name], raw)
			if err != nil {
				return invalidParams("params.inputResponses.%s is not a response to its question", printable(key))
			}
			decoded[key] = response
		}
	}
	left := slices.DeleteFunc(a.rounds[task], func(round *questionRound) bool {
		for key, name := range round.names {
			if response, answered := decoded[key]; answered {
				round.answers[name] = response
				delete(round.names, key)
			}
		}
		if len(round.names) == 0 {
			round.reply <- round.answers
		}
		return len(round.names) == 0 || round.isWithdrawn()
	})
	if a.rounds[task] = left; len(left) == 0 {
		delete(a.rounds, task)
	}
	return nil
}

// forget removes the questions of a task that has ended.
func (a *taskQuestions) forget(task string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.rounds, task)
}

// elicitResultOf decodes the response to an elicitation.
func elicitResultOf(raw json.RawMessage) (*mcp.ElicitResult, error) {
	out := &mcp.ElicitResult{}
	err := json.Unmarshal(raw, out)
	if err == nil && out.Action == "" {
		err = errors.New("the action is missing")
	}
	return out, err
}

// responseTo decodes the response to a question.
func responseTo(q mcp.InputRequest, raw json.RawMessage) (out mcp.InputResponse, err error) {
	switch q.(type) {
	case *mcp.ElicitParams:
		return elicitResultOf(raw)
	case *mcp.ListRootsParams: //nolint:staticcheck // clients of all revisions have it
		out = &mcp.ListRootsResult{} //nolint:staticcheck // clients of all revisions have it
	default:
		out = &mcp.CreateMessageWithToolsResult{} //nolint:staticcheck // clients of all revisions have it
	}
	return out, json.Unmarshal(raw, out)
}
