package upstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	maxQuestions = 16 // of one upstream at the same time
	maxRounds    = 10 // of one request
	maxBusy      = 3  // of them in which the upstream asks for patience only
	busyWait     = 200 * time.Millisecond
)

// elicitation is a question of an upstream of the revisions before 2026-07-28, which do
// not say what it belongs to: it is put to the caller of the one request that runs.
func (s *session) elicitation(ctx context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	if r.Params == nil {
		return nil, errors.New("the question is empty")
	}
	c, reason := s.calls.soleRequest()
	if c == nil {
		return declined(reason), nil
	}
	defer s.calls.endQuestion()
	return c.elicit(ctx, r.Params)
}

// soleRequest returns the one request that runs if its caller can be asked, else why nobody
// is. With several, the question would perhaps be put to the wrong person.
func (t *calls) soleRequest() (*call, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case len(t.running) == 0:
		return nil, "no request is running"
	case len(t.running) > 1:
		return nil, "several requests are running, and which of them the question belongs to cannot be told"
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

// declined is an answer that says why in a place where programs look that know comet.
func declined(reason string) *mcp.ElicitResult {
	return &mcp.ElicitResult{Action: "decline", Meta: mcp.Meta{"comet/reason": reason}}
}

// elicit puts a question to the caller while the request's clock stands.
func (c *call) elicit(ctx context.Context, p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	if c.Elicit == nil {
		return declined("the caller cannot be asked"), nil
	}
	if p.Mode != "" && p.Mode != "form" {
		return declined("only forms can be put to the caller"), nil
	}
	defer c.pause()()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.session.life, cancel)()
	res, err := c.Elicit(ctx, p)
	if err == nil && res == nil {
		res = declined("the caller did not answer")
	}
	return res, err
}

// round is one of the rounds of a request since 2026-07-28: what the upstream wants to
// know before it answers, and what it is told.
type round struct {
	needsInput bool
	questions  mcp.InputRequestMap
	answers    mcp.InputResponseMap
	state      string
}

// runRounds repeats a request until the upstream has what it needs. The SDK could do it, but
// would not know which call a question belongs to.
func runRounds[T any](ctx context.Context, c *call, send func(round) (T, round, error)) (T, error) {
	var none T
	var r round
	busy := 0
	for range maxRounds {
		out, asked, err := send(r)
		if err != nil || !asked.needsInput && len(asked.questions) == 0 {
			return out, err
		}
		if len(asked.questions) == 0 {
			if busy++; busy > maxBusy {
				return none, errors.New("it is busy")
			}
			if err := wait(ctx, time.Duration(busy)*busyWait); err != nil {
				return none, err
			}
		}
		answers, err := c.answer(ctx, asked.questions)
		if err != nil {
			return none, err
		}
		r = round{answers: answers, state: asked.state}
	}
	return none, fmt.Errorf("it asks for more after %d rounds", maxRounds)
}

// answer answers the questions of one round, in the order of their names.
func (c *call) answer(ctx context.Context, questions mcp.InputRequestMap) (mcp.InputResponseMap, error) {
	if len(questions) > maxQuestions {
		return nil, fmt.Errorf("it asks more than %d questions at once", maxQuestions)
	}
	answers := mcp.InputResponseMap{}
	for _, name := range slices.Sorted(maps.Keys(questions)) {
		if roots, ok := c.session.answerRoots(questions[name]); ok {
			answers[name] = roots
			continue
		}
		question, ok := questions[name].(*mcp.ElicitParams)
		if !ok {
			return nil, errors.New("it asks for the use of a model, which comet refuses")
		}
		res, err := c.elicit(ctx, question)
		if err != nil {
			return nil, fmt.Errorf("its question could not be put: %w", err)
		}
		answers[name] = res
	}
	return answers, nil
}

// wait returns after d, or with the error of ctx.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Roots are deprecated since 2026-07-28, and asked for by servers as common as the one
// for files. All that knows of them is in this file.

// offerRoots says that there are roots where there are.
func (s *session) offerRoots(c *mcp.ClientCapabilities) {
	if len(s.launch.Roots) > 0 {
		c.RootsV2 = &mcp.RootCapabilities{}
	}
}

// addRoots has the client answer requests for roots.
func (s *session) addRoots(c *mcp.Client) { c.AddRoots(s.roots()...) }

// answerRoots answers a question for roots, and no other.
func (s *session) answerRoots(q mcp.InputRequest) (answer mcp.InputResponse, ok bool) {
	if _, ok := q.(*mcp.ListRootsParams); !ok {
		return nil, false
	}
	return &mcp.ListRootsResult{Roots: s.roots()}, true
}

func (s *session) roots() []*mcp.Root {
	roots := make([]*mcp.Root, len(s.launch.Roots))
	for i, path := range s.launch.Roots {
		roots[i] = &mcp.Root{URI: (&url.URL{Scheme: "file", Path: path}).String()}
	}
	return roots
}
