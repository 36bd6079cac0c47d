package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/background"
)

const (
	maxQuestions = 16 // of one upstream, concurrently
	maxRounds    = 10 // of one request
	maxBusy      = 3  // rounds of one request without a question
	busyWait     = 200 * time.Millisecond
)

// elicitation handles a question of a server before 2026-07-28. Such a question does not name its
// request, so it is passed to the caller of the only running request.
func (s *session) elicitation(ctx context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	if r.Params == nil {
		return nil, errors.New("the question has no parameters")
	}
	c, reason := s.calls.soleRequest()
	if c == nil {
		return declined(reason), nil
	}
	defer s.calls.endQuestion()
	return c.elicit(ctx, r.Params)
}

// soleRequest returns the only running request, or the reason why the question cannot be passed on.
// With several requests the question could reach the wrong caller.
func (t *calls) soleRequest() (*call, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case len(t.running) == 0:
		return nil, "no request is running"
	case len(t.running) > 1:
		return nil, "several requests are running, and the question does not say to which of them it belongs"
	case t.openQuestions >= maxQuestions:
		return nil, "too many questions wait for an answer"
	}
	for _, c := range t.running {
		t.openQuestions++
		return c, ""
	}
	return nil, ""
}

func (t *calls) endQuestion() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.openQuestions--
}

// declined returns an answer that declines, with the reason in its _meta.
func declined(reason string) *mcp.ElicitResult {
	return &mcp.ElicitResult{Action: "decline", Meta: mcp.Meta{"comet/reason": reason}}
}

// elicit passes a question to the caller. The timeout of the request is paused meanwhile.
func (c *call) elicit(ctx context.Context, p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	if c.Elicit == nil {
		return declined("the caller cannot be asked"), nil
	}
	if p.Mode != "" && p.Mode != "form" {
		return declined("only forms can be passed to the caller"), nil
	}
	if hasReferences(p.RequestedSchema) {
		return declined("the form has references, which comet does not follow"), nil
	}
	defer c.pause()()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.session.life, cancel)()
	res, err := c.Elicit(ctx, p)
	if err == nil && res == nil {
		res = declined("the caller did not reply")
	}
	return res, err
}

// hasReferences reports whether a schema has references: cyclic ones overflow the SDK's stack.
func hasReferences(schema any) bool {
	text, err := json.Marshal(schema)
	return err != nil || bytes.Contains(text, []byte(`"$ref":`)) || bytes.Contains(text, []byte(`"$dynamicRef":`))
}

// round is one round of a request since 2026-07-28: the answers to the questions of the last one.
type round struct {
	meta    mcp.Meta
	answers mcp.InputResponseMap
	state   string
	call    *call
}

// questionsOf returns what the upstream needs to continue a request.
func questionsOf(res any) (needsInput bool, questions mcp.InputRequestMap, state string) {
	switch r := res.(type) {
	case *Result:
		if r.decoded != nil { // a plain result needs nothing
			return r.decoded.NeedsInput(), r.decoded.InputRequests, r.decoded.RequestState
		}
	case *mcp.ReadResourceResult:
		return r.NeedsInput(), r.InputRequests, r.RequestState
	case *mcp.GetPromptResult:
		return r.NeedsInput(), r.InputRequests, r.RequestState
	}
	return false, nil, ""
}

// runRounds runs a request and repeats it until the upstream needs no more input. The SDK can do
// this too, but in goroutines of its own, where an invalid question ends the program.
func runRounds[T any](ctx context.Context, s *session, what string, o *CallOptions, send func(context.Context, round) (T, error)) (T, error) {
	return runRequest(ctx, s, what, o, func(ctx context.Context, c *call) (none T, err error) {
		r := round{meta: c.meta(), call: c}
		busy := 0
		for range maxRounds {
			out, err := send(ctx, r)
			if err != nil {
				return none, err
			}
			needsInput, questions, state := questionsOf(out)
			if !needsInput && len(questions) == 0 {
				return out, nil
			}
			if len(questions) == 0 {
				if busy++; busy > maxBusy {
					return none, errors.New("it is busy")
				}
				if err := background.Sleep(ctx, time.Duration(busy)*busyWait); err != nil {
					return none, err
				}
			}
			r.state = state
			if r.answers, err = c.answer(ctx, questions); err != nil {
				return none, err
			}
		}
		return none, fmt.Errorf("it needs more input after %d rounds", maxRounds)
	})
}

// answer answers the questions of one round, sorted by name.
func (c *call) answer(ctx context.Context, questions mcp.InputRequestMap) (mcp.InputResponseMap, error) {
	if len(questions) > maxQuestions {
		return nil, fmt.Errorf("it asks more than %d questions in one round", maxQuestions)
	}
	answers := mcp.InputResponseMap{}
	for _, name := range slices.Sorted(maps.Keys(questions)) {
		switch question := questions[name].(type) {
		case *mcp.ListRootsParams:
			answers[name] = &mcp.ListRootsResult{Roots: c.session.roots()}
		case *mcp.ElicitParams:
			res, err := c.elicit(ctx, question)
			if err != nil {
				return nil, fmt.Errorf("its question could not be passed on: %w", err)
			}
			answers[name] = res
		default:
			return nil, errors.New("it requests sampling, which comet rejects")
		}
	}
	return answers, nil
}

// roots returns the roots of the definition. They are deprecated since 2026-07-28, but common
// servers such as the filesystem server request them.
func (s *session) roots() []*mcp.Root {
	roots := make([]*mcp.Root, len(s.launch.Roots))
	for i, path := range s.launch.Roots {
		roots[i] = &mcp.Root{URI: (&url.URL{Scheme: "file", Path: path}).String()}
	}
	return roots
}
