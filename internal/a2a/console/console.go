// Package console reads the cards of A2A agents and sends them messages, for the command line.
package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"comet/internal/a2a/client"
	"comet/internal/errs"
)

const wellKnown = "/.well-known/agent-card.json"

// The waits before a task without a stream is read again.
const minWait, maxWait = 200 * time.Millisecond, 5 * time.Second

// Agent is an agent with its card.
type Agent struct {
	Card client.Card
	// Raw is the card as it was received, Endpoint the interface that is used.
	Raw      []byte
	Endpoint client.Endpoint
	options  client.Options
}

// Read reads the card at an address, or at the usual path of a server. The credentials of the options are only for that server.
func Read(ctx context.Context, address string, o client.Options) (*Agent, error) {
	home, err := url.Parse(address)
	if err != nil || home.Host == "" {
		return nil, errs.New(errs.InvalidRequest, "%q is not the http or https address of an agent or its card", address)
	}
	if home.Path == "" || home.Path == "/" {
		home.Path = wellKnown
	}
	raw, _, err := client.FetchCard(ctx, &o, home.String(), "")
	if err != nil {
		return nil, err
	}
	out := &Agent{Raw: raw, options: o}
	if out.Card, err = client.ParseCard(raw); err != nil {
		return nil, err
	}
	out.Endpoint, err = out.Card.Endpoint(func(u *url.URL) error {
		if o.Header != "" && (u.Scheme != home.Scheme || u.Host != home.Host) {
			return errs.New(errs.InvalidRequest, "%s://%s is not the server of the card and would receive the credentials", u.Scheme, u.Host)
		}
		return nil
	})
	return out, err
}

// Result is the state of a task when Send returns.
type Result struct {
	State             a2a.TaskState
	TaskID, ContextID string
	// Text is the message of the state.
	Text string
}

// sending is a message whose task is followed.
type sending struct {
	*client.Client
	Result
	out     io.Writer
	note    func(text string)
	printed map[string]string // of each artifact
	last    string            // id of the last event
}

// errOver ends a stream when there is nothing to wait for.
var errOver = errors.New("the task does not continue")

// Send sends a message and, unless wait is false, follows its task until it ends or asks. It writes artifacts to out as they arrive and
// calls note with messages about the progress.
func (a *Agent) Send(ctx context.Context, m client.Message, wait bool, out io.Writer, note func(text string)) (Result, error) {
	m.Role = "ROLE_USER"
	s := &sending{Client: client.New(a.options, a.Endpoint), out: out, note: note, printed: map[string]string{}}
	streams := wait && a.Card.Capabilities.Streaming
	if streams {
		if err := s.over(s.Stream(ctx, m, s.event)); err == nil || s.TaskID == "" {
			return s.Result, err
		}
	} else {
		e, err := s.Client.Send(ctx, m)
		if err == nil {
			err = s.event("", e)
		}
		if err = s.over(err); err == nil && s.isOver() || !wait || err != nil {
			return s.Result, err
		}
	}
	for pause := minWait; ; pause = min(2*pause, maxWait) {
		e, err := s.Get(ctx, s.TaskID)
		if err == nil {
			err = s.event("", e)
		}
		if err = s.over(err); err != nil || s.isOver() {
			return s.Result, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return s.Result, ctx.Err()
		}
		if streams {
			if err := s.Subscribe(ctx, s.TaskID, s.last, s.event); errors.Is(err, errOver) {
				return s.Result, nil
			}
		}
	}
}

func (s *sending) over(err error) error {
	if errors.Is(err, errOver) {
		return nil
	}
	return err
}

func (s *sending) isOver() bool {
	return s.State.Terminal() || s.State == a2a.TaskStateInputRequired || s.State == a2a.TaskStateAuthRequired
}

// event prints an event. It returns errOver if there is nothing to wait for.
func (s *sending) event(id string, e client.Event) error {
	if id != "" {
		s.last = id
	}
	taskID, contextID := e.IDs()
	if s.TaskID == "" && taskID != "" {
		s.note("task " + taskID)
	}
	if taskID != "" {
		s.TaskID, s.ContextID = taskID, contextID
	}
	var about *client.Message
	switch {
	case e.Task != nil:
		about = e.Task.Status.Message
		for _, a := range e.Task.Artifacts {
			s.print(a.ArtifactID, render(a.Parts))
		}
	case e.Message != nil:
		s.print("message", render(e.Message.Parts))
	case e.StatusUpdate != nil:
		about = e.StatusUpdate.Status.Message
	case e.ArtifactUpdate != nil:
		text := render(e.ArtifactUpdate.Artifact.Parts)
		if e.ArtifactUpdate.Append {
			text = s.printed[e.ArtifactUpdate.Artifact.ArtifactID] + text
		}
		s.print(e.ArtifactUpdate.Artifact.ArtifactID, text)
	}
	if state := e.TaskState(); state != "" {
		text := about.Text()
		if state == a2a.TaskStateWorking && text != "" && text != s.Text {
			s.note(text)
		}
		s.State, s.Text = state, text
	}
	if s.isOver() {
		return errOver
	}
	return nil
}

// print prints what is new of an artifact.
func (s *sending) print(id, text string) {
	rest, more := strings.CutPrefix(text, s.printed[id])
	if !more {
		rest = "\n" + text
	}
	s.printed[id] = text
	_, _ = io.WriteString(s.out, rest) // the caller notices when its output is gone
}

// render returns parts as text: data as JSON in one line, files by their names.
func render(parts []client.Part) string {
	var b strings.Builder
	for _, p := range parts {
		switch {
		case p.Text != nil:
			b.WriteString(*p.Text)
		case p.Data != nil:
			line, _ := json.Marshal(p.Data) // it was decoded
			b.Write(append(line, '\n'))
		case p.URL != "":
			_, _ = fmt.Fprintf(&b, "[file %s: %s]\n", p.Filename, p.URL)
		default:
			_, _ = fmt.Fprintf(&b, "[file %s: %d bytes]\n", p.Filename, len(p.Raw))
		}
	}
	return b.String()
}
