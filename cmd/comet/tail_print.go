package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// tailed prints an event of the stream: for programs what came, a document each.
func (p *printer) tailed(m streamed) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.out.format {
	case formatJSON:
		_, err := fmt.Fprintln(p.out.w, m.data)
		return err
	case formatYAML:
		if _, err := io.WriteString(p.out.w, "---\n"); err != nil {
			return err
		}
		return p.out.yaml([]byte(m.data))
	}
	var e struct {
		Position int64           `json:"position"`
		Key      string          `json:"key"`
		At       string          `json:"at"`
		Data     json.RawMessage `json:"data"`
	}
	if err := decode([]byte(m.data), &e); err != nil {
		return err
	}
	_, err := fmt.Fprintf(p.out.w, "%s  %s  %s  %s\n  %s\n",
		p.paint(dim, fmt.Sprint(e.Position)), p.paint(dim, e.At), p.paint(tailColour(m.event), m.event), printable(e.Key), p.paint(dim, string(e.Data)))
	return err
}

func tailColour(event string) string {
	switch event {
	case "task.completed":
		return green
	case "task.failed", "worker.breaker_opened":
		return red
	case "task.cancelled", "task.retried", "task.question":
		return yellow
	}
	if strings.HasPrefix(event, "task.") || strings.HasPrefix(event, "worker.") {
		return cyan
	}
	return colourOf(event)
}
