// Package console reads the cards of A2A agents and sends them messages, for the command line.
package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/uuid"

	"comet/internal/a2a/client"
	"comet/internal/a2a/wire"
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
	Endpoint a2a.AgentInterface
	options  client.Options
}

// Read reads the card at an address, or at the usual path of a server. The bearer token, "" for none, is only for that server.
func Read(ctx context.Context, address, bearer, userAgent string) (*Agent, error) {
	o := client.Options{Transport: http.DefaultTransport, UserAgent: userAgent}
	if bearer != "" {
		o.Header, o.Value = "Authorization", "Bearer "+bearer
	}
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
	if out.Card.Signature, err = client.VerifyCard(ctx, o, home.String(), raw); err != nil {
		return nil, err
	}
	out.Endpoint, err = out.Card.Endpoint(home.String(), bearer != "", func(string) error { return nil })
	return out, err
}

// Summary returns the card and the interface that is used as JSON.
func (a *Agent) Summary() []byte {
	text, _ := json.Marshal(map[string]any{"card": a.Card, "endpoint": a.Endpoint}) // decoded JSON
	return text
}

// Message is a message to an agent.
type Message struct {
	// ID is that of the message, "" for a new one. ContextID and TaskID are those that it continues, "" for none.
	ID, ContextID, TaskID string
	Capability            string
	// Text and Data are its parts, "" and nil for none.
	Text string
	Data json.RawMessage
	// NoWait makes Send return once the agent has the message.
	NoWait bool
}

func (m Message) encode() *a2a.Message {
	out := &a2a.Message{ID: cmp.Or(m.ID, uuid.NewString()), ContextID: m.ContextID, TaskID: a2a.TaskID(m.TaskID), Role: a2a.MessageRoleUser}
	if m.Text != "" {
		out.Parts = append(out.Parts, a2a.NewTextPart(m.Text))
	}
	if m.Data != nil {
		out.Parts = append(out.Parts, a2a.NewDataPart(m.Data))
	}
	if m.Capability != "" {
		out.SetMeta("capability", m.Capability)
	}
	return out
}

// sending is a message whose task is followed.
type sending struct {
	*client.Client
	taskID  string
	state   a2a.TaskState
	text    string // the message of the state
	out     io.Writer
	note    func(text string)
	printed map[a2a.ArtifactID]string // of each artifact
	last    string                    // id of the last event
}

// errOver ends a stream when there is nothing to wait for.
var errOver = errors.New("the task does not continue")

// Send sends a message and follows its task until it ends or asks a question. It writes artifacts to out as they arrive and calls note with
// messages about the progress. failure says why the task did not succeed, "" for a success.
func (a *Agent) Send(ctx context.Context, m Message, out io.Writer, note func(text string)) (failure string, err error) {
	s := &sending{Client: client.New(a.options, a.Endpoint), out: out, note: note, printed: map[a2a.ArtifactID]string{}}
	if err = s.run(ctx, m.encode(), !m.NoWait, a.Card.Capabilities.Streaming); errors.Is(err, errOver) {
		err = nil
	}
	verb := "was " + strings.ToLower(strings.TrimPrefix(string(s.state), "TASK_STATE_"))
	switch s.state {
	case a2a.TaskStateFailed:
		verb = "failed"
	case a2a.TaskStateAuthRequired:
		verb = "requires authentication at the agent"
	}
	switch {
	case s.state == a2a.TaskStateInputRequired:
		failure = "the agent asks: " + s.text + "; reply with --task " + s.taskID
	case s.isOver() && s.state != a2a.TaskStateCompleted:
		failure = strings.TrimSuffix("the task "+verb+": "+s.text, ": ")
	}
	return failure, err
}

// run sends the message and follows its task. It returns errOver when there is nothing to wait for.
func (s *sending) run(ctx context.Context, m *a2a.Message, wait, streams bool) error {
	if streams && wait {
		if err := s.Stream(ctx, m, s.event); s.taskID == "" || errors.Is(err, errOver) {
			return err
		}
	} else if err := s.read(s.Client.Send(ctx, m)); err != nil || !wait {
		return err
	}
	for pause := minWait; ; pause = min(2*pause, maxWait) {
		if err := s.read(s.Get(ctx, s.taskID)); err != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		if streams {
			if err := s.Subscribe(ctx, s.taskID, s.last, s.event); errors.Is(err, errOver) {
				return err
			}
		}
	}
}

func (s *sending) read(e a2a.Event, err error) error {
	if err != nil {
		return err
	}
	return s.event("", e)
}

func (s *sending) isOver() bool {
	return s.state.Terminal() || s.state == a2a.TaskStateInputRequired || s.state == a2a.TaskStateAuthRequired
}

// event prints an event. It returns errOver if there is nothing to wait for.
func (s *sending) event(id string, e a2a.Event) error {
	s.last = cmp.Or(id, s.last)
	taskID := string(e.TaskInfo().TaskID)
	if s.taskID == "" && taskID != "" {
		s.note("task " + taskID)
	}
	s.taskID = cmp.Or(taskID, s.taskID)
	switch e := e.(type) {
	case *a2a.Task:
		for _, a := range e.Artifacts {
			s.print(a.ID, render(a.Parts))
		}
	case *a2a.Message:
		s.print("message", render(e.Parts))
	case *a2a.TaskArtifactUpdateEvent:
		text := render(e.Artifact.Parts)
		if e.Append {
			text = s.printed[e.Artifact.ID] + text
		}
		s.print(e.Artifact.ID, text)
	}
	if status := wire.StatusOf(e); status.State != "" {
		text := ""
		if status.Message != nil {
			text = wire.Text(status.Message.Parts)
		}
		if status.State == a2a.TaskStateWorking && text != "" && text != s.text {
			s.note(text)
		}
		s.state, s.text = status.State, text
	}
	if s.isOver() {
		return errOver
	}
	return nil
}

// print prints what is new of an artifact.
func (s *sending) print(id a2a.ArtifactID, text string) {
	rest, more := strings.CutPrefix(text, s.printed[id])
	if !more {
		rest = "\n" + text
	}
	s.printed[id] = text
	_, _ = io.WriteString(s.out, rest) // the caller notices when its output is gone
}

// render returns parts as text: data as JSON in one line, files by their names.
func render(parts a2a.ContentParts) string {
	var b strings.Builder
	for _, p := range parts {
		switch c := p.Content.(type) {
		case a2a.Text:
			b.WriteString(string(c))
		case a2a.Data:
			line, _ := json.Marshal(c.Value) // it was decoded
			b.Write(append(line, '\n'))
		case a2a.URL:
			_, _ = fmt.Fprintf(&b, "[file %s: %s]\n", p.Filename, c)
		case a2a.Raw:
			_, _ = fmt.Fprintf(&b, "[file %s: %d bytes]\n", p.Filename, len(c))
		}
	}
	return b.String()
}
