package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"

	"comet/internal/errs"
	"comet/internal/telemetry"
)

// The colours of a terminal.
const (
	plain   = ""
	dim     = "\x1b[2m"
	red     = "\x1b[31m"
	green   = "\x1b[32m"
	yellow  = "\x1b[33m"
	magenta = "\x1b[35m"
	cyan    = "\x1b[36m"
	reset   = "\x1b[0m"
)

// printer prints events as they come, each as a whole.
type printer struct {
	mu     sync.Mutex
	out    output
	notes  io.Writer
	colour bool
}

// newPrinter prints in colour on a terminal, unless NO_COLOR says not to.
func newPrinter(out output, notes io.Writer) *printer {
	return &printer{out: out, notes: notes, colour: colourful(out.w)}
}

func colourful(w io.Writer) bool {
	return telemetry.IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// paint is text in a colour.
func (p *printer) paint(colour, text string) string {
	if text = printable(text); !p.colour || colour == plain {
		return text
	}
	return colour + text + reset
}

// refused tells of a request that was not comet's, or not in order.
func (p *printer) refused(from string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	say(p.notes, "refused a request from %s: %s", from, detailOf(err))
}

// detailOf is an error in the words for a person.
func detailOf(err error) string {
	if known := (*errs.Error)(nil); errors.As(err, &known) {
		return known.Detail
	}
	return err.Error()
}

// event prints one event: for programs a JSON document in a line of its own.
func (p *printer) event(e received) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out.format == formatTable {
		_, err := io.WriteString(p.out.w, p.people(e))
		return err
	}
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return err
	}
	if p.out.format == formatJSON {
		_, err := p.out.w.Write(line.Bytes())
		return err
	}
	if _, err := io.WriteString(p.out.w, "---\n"); err != nil {
		return err
	}
	return p.out.yaml(line.Bytes())
}

// people is an event for people: when, what, of whom, what became of it; then
// the data in a line of its own.
func (p *printer) people(e received) string {
	var subject struct {
		ID      string `json:"id"`
		AgentID string `json:"agent_id"`
	}
	_ = json.Unmarshal(e.Data, &subject) // what has no subject is shown without
	if subject.AgentID != "" {
		subject.ID = subject.AgentID
	}
	line := p.paint(dim, e.Timestamp) + "  " + p.paint(colourOf(e.Type), e.Type) + "  " + printable(subject.ID)
	if f := e.Forwarded; f != nil {
		colour, result := red, f.Error
		if f.Error == "" {
			result = strings.TrimSpace(fmt.Sprintf("%d %s", f.Status, http.StatusText(f.Status)))
		}
		if f.Status >= 200 && f.Status < 300 {
			colour = green
		}
		line += "  " + p.paint(colour, fmt.Sprintf("-> %s in %d ms", result, f.DurationMS))
	}
	var data bytes.Buffer
	if json.Compact(&data, e.Data) != nil {
		return line + "\n"
	}
	return line + "\n  " + p.paint(dim, data.String()) + "\n"
}

func colourOf(event string) string {
	switch event {
	case "agent.created":
		return green
	case "agent.updated":
		return cyan
	case "agent.deactivated", "agent.budget_warning":
		return yellow
	case "agent.budget_exceeded", "webhook.disabled":
		return red
	case "webhook.test":
		return magenta
	}
	return plain
}
