package main

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"comet/agent"
	"comet/cmd/comet/viewtext"
	"comet/internal/telemetry"
)

const (
	barWidth = 24
	// compareLimit is how much printed output is kept to compare it with the result, in bytes.
	compareLimit = 64 << 10
)

// display shows the output and the progress of a task: a bar that is redrawn on a terminal,
// otherwise one line per step.
type display struct {
	out, messages io.Writer
	drawing       bool   // on a terminal
	enabled       bool   // progress is shown
	missing       string // the command that starts a worker, "" once it was shown

	mu      sync.Mutex
	bar     string
	step    string // the last line about a step
	midLine bool   // the output is within a line
	shown   []byte // the end of what was printed
}

func newDisplay(out, notes io.Writer, wanted bool) *display {
	if telemetry.IsTerminal(out) {
		out = &plainWriter{to: out}
	}
	return &display{out: out, messages: notes, drawing: telemetry.IsTerminal(notes), enabled: wanted}
}

// Write shows output of the task.
func (d *display) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clear()
	if _, err := d.out.Write(p); err != nil {
		return 0, err
	}
	d.shown = append(d.shown, p...)
	if over := len(d.shown) - compareLimit; over > 0 {
		d.shown = append(d.shown[:0], d.shown[over:]...)
	}
	if d.midLine = len(p) > 0 && p[len(p)-1] != '\n'; !d.midLine {
		d.draw()
	}
	return len(p), nil
}

// task shows the state of the task.
func (d *display) task(t agent.Task) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.WaitingFor == "retry" && t.AgentID == "" && d.missing != "" {
		d.clear()
		printLine(d.messages, "No worker for the task is connected; the task fails if none connects while it is retried. Start one: %s", d.missing)
		d.missing = ""
	}
	if !d.enabled || t.Ended() {
		return nil
	}
	what := t.StepName
	if t.WaitingFor == "worker" || t.WaitingFor == "retry" {
		what = viewtext.Waits(t.WaitingFor)
	}
	if !d.drawing {
		if line := fmt.Sprintf("%3d%%  %s", t.Progress, what); what != "" && line != d.step {
			d.step = line
			printLine(d.messages, "%s", line)
		}
		return nil
	}
	full := barWidth * t.Progress / 100
	d.clear()
	d.bar = fmt.Sprintf("[%s%s] %3d%%  %s", strings.Repeat("#", full), strings.Repeat("-", barWidth-full), t.Progress, printable(what))
	d.draw()
	return nil
}

// draw shows the bar, unless the output is within a line.
func (d *display) draw() {
	if d.bar != "" && !d.midLine {
		_, _ = io.WriteString(d.messages, "\r\x1b[K"+d.bar)
	}
}

func (d *display) clear() {
	if d.bar != "" && !d.midLine {
		_, _ = io.WriteString(d.messages, "\r\x1b[K")
	}
}

// end removes the bar.
func (d *display) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clear()
	d.bar = ""
}

// result prints what of a result was not printed already: many agents repeat their output in it.
func (d *display) result(output string) error {
	d.mu.Lock()
	rest := d.unprinted(output)
	if rest != "" && d.midLine {
		rest = "\n" + rest
	}
	d.mu.Unlock()
	if rest == "" {
		return nil
	}
	if !strings.HasSuffix(rest, "\n") {
		rest += "\n"
	}
	_, err := d.Write([]byte(rest))
	return err
}

func (d *display) unprinted(output string) string {
	const enough = 4 << 10
	shown := strings.TrimRight(string(d.shown), "\n")
	if shown == "" {
		return output
	}
	if end := strings.TrimRight(output[max(len(output)-enough, 0):], "\n"); strings.HasSuffix(shown, end) {
		return ""
	}
	if rest, ok := strings.CutPrefix(output, shown); ok {
		return strings.TrimLeft(rest, "\n")
	}
	return output
}
