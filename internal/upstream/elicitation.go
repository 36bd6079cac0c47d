package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/background"
)

const (
	maxQuestions = 16 // of one request, concurrently
	maxRounds    = 10 // of one request
	maxBusy      = 3  // rounds of one request without a question
	busyWait     = 200 * time.Millisecond

	// AskTimeout limits how long a caller may take to reply.
	AskTimeout = 5 * time.Minute

	// questionName is the name of a question of a server before 2026-07-28, which has none.
	questionName = "question"
	// metaReason is the member of _meta with the reason of an answer that declines.
	metaReason = "comet/reason"
)

// errNoReply is the error of questions without a reply within AskTimeout.
var errNoReply = fmt.Errorf("the caller did not reply within %d minutes", AskTimeout/time.Minute)

// askCaller asks the caller questions and waits for the reply.
func (o *CallOptions) askCaller(ctx context.Context, questions mcp.InputRequestMap) (mcp.InputResponseMap, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, AskTimeout, errNoReply)
	defer cancel()
	answers, err := o.Ask(ctx, questions)
	if err != nil && errors.Is(context.Cause(ctx), errNoReply) {
		return nil, errNoReply
	}
	return answers, err
}

// Elicit asks the caller to fill in a form.
func (o *CallOptions) Elicit(ctx context.Context, form *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	answers, err := o.askCaller(ctx, mcp.InputRequestMap{questionName: form})
	if res, ok := answers[questionName].(*mcp.ElicitResult); ok || err != nil && !errors.Is(err, errNoReply) {
		return res, err
	}
	return declined("the caller did not reply"), nil
}

// passOn passes a question of a server before 2026-07-28 to the caller of its request.
func passOn[T mcp.InputResponse](ctx context.Context, s *session, question interface {
	mcp.InputRequest
	GetMeta() map[string]any
}) (none T, err error) {
	if reflect.ValueOf(question).IsNil() {
		return none, errors.New("the question has no parameters")
	}
	c, reason := s.calls.ofQuestion(ctx, question.GetMeta()[metaCall])
	delete(question.GetMeta(), metaCall)
	if c == nil {
		if res, ok := any(declined(reason)).(T); ok {
			return res, nil
		}
		return none, errors.New(reason)
	}
	defer c.endQuestion()
	answers, err := c.ask(ctx, mcp.InputRequestMap{questionName: question})
	if res, ok := answers[questionName].(T); ok || err != nil {
		return res, err
	}
	return none, errors.New("the caller did not reply")
}

// ofQuestion returns the request that a question with this mark belongs to, or the reason why that is
// unknown. Over HTTP the mark names it. Over stdio a question waits until the upstream has responded to
// all other requests that were running when it asked.
func (t *calls) ofQuestion(ctx context.Context, mark any) (*call, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var candidates, asking []*call
	last, isNumber := mark.(float64)
	for token, c := range t.running {
		switch mayAsk := isNumber && c.number <= int(last); {
		case token == mark, mayAsk && c.questions == 0:
			candidates = append(candidates, c)
		case mayAsk:
			asking = append(asking, c)
		}
	}
	if len(candidates) == 0 && len(asking) == 1 { // it asks several questions at a time
		candidates = asking
	}
	t.unassigned++
	defer func() { t.unassigned-- }()
	if len(candidates) > 1 && t.unassigned >= len(candidates) { // none of the candidates would end
		return nil, "several requests ask at the same time, and the questions do not say to which of them they belong"
	}
	for cancelled := false; ; {
		candidates = slices.DeleteFunc(candidates, func(c *call) bool {
			cancelled = cancelled || c.ended && !c.answered
			return c.ended || c.questions > 0 && len(candidates) > 1
		})
		switch {
		case cancelled:
			return nil, "the request that it may belong to was cancelled"
		case len(candidates) == 0:
			return nil, "no request is running that can ask"
		case len(candidates) == 1 && candidates[0].questions >= maxQuestions:
			return nil, "too many questions wait for an answer"
		case len(candidates) == 1:
			candidates[0].questions++
			t.announce()
			return candidates[0], ""
		}
		changed := t.changed
		t.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			cancelled = true
		}
		t.mu.Lock()
	}
}

func (c *call) endQuestion() {
	t := &c.session.calls
	t.mu.Lock()
	defer t.mu.Unlock()
	c.questions--
}

// declined returns an answer that declines, with the reason in its _meta.
func declined(reason string) *mcp.ElicitResult {
	return &mcp.ElicitResult{Action: "decline", Meta: mcp.Meta{metaReason: reason}}
}

// ask passes the questions of one round to the caller. The timeout of the request is paused meanwhile.
func (c *call) ask(ctx context.Context, questions mcp.InputRequestMap) (mcp.InputResponseMap, error) {
	if len(questions) > maxQuestions {
		return nil, fmt.Errorf("it asks more than %d questions in one round", maxQuestions)
	}
	answers, open := mcp.InputResponseMap{}, mcp.InputRequestMap{}
	for name, question := range questions {
		switch q := question.(type) {
		case *mcp.ListRootsParams:
			if len(c.session.launch.Roots) > 0 || c.Can.Roots == nil {
				answers[name] = &mcp.ListRootsResult{Roots: c.session.roots()}
				continue
			}
		case *mcp.ElicitParams:
			if reason := c.refusal(q); reason != "" {
				answers[name] = declined(reason)
				continue
			}
		default:
			if c.Can.Sampling == nil {
				return nil, &jsonrpc.Error{
					Code: mcp.CodeMissingRequiredClientCapabilities, Message: "the caller does not support sampling",
					Data: json.RawMessage(`{"requiredCapabilities":{"sampling":{}}}`),
				}
			}
		}
		open[name] = question
	}
	if len(open) == 0 {
		return answers, nil
	}
	defer c.pause()()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.session.life, cancel)()
	got, err := c.askCaller(ctx, open)
	maps.Copy(answers, got)
	return answers, err
}

// refusal returns the reason why comet declines a question, "" to ask the caller.
func (c *call) refusal(q *mcp.ElicitParams) string {
	switch {
	case c.Can.Elicitation == nil:
		return "the caller cannot be asked"
	case q.Mode == "url" && c.Can.Elicitation.URL == nil:
		return "the caller cannot open addresses"
	case q.Mode != "url" && !c.Can.Forms():
		return "the caller cannot fill in forms"
	case hasReferences(q.RequestedSchema):
		return "the form has references, which comet does not follow"
	}
	return ""
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
			if r.answers, err = c.ask(ctx, questions); err != nil {
				return none, fmt.Errorf("its question could not be passed on: %w", err)
			}
		}
		return none, fmt.Errorf("it needs more input after %d rounds", maxRounds)
	})
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
