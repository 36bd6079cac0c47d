package outline

import (
	"encoding/json"
	"strings"
	"time"
)

// Progress follows the tasks of a workflow in its states and its events.
type Progress struct {
	// Print prints the state of a task in one line.
	Print func(line string)

	version int64             // of the last state
	shown   map[string]string // the printed states of tasks
}

// State prints what has changed in a state of the workflow, the body of a response with a version. It reports whether the
// workflow no longer runs.
func (p *Progress) State(body []byte, version int64) (ended bool, err error) {
	type task struct {
		ID         string `json:"taskId"`
		Status     string `json:"status"`
		DurationMS int64  `json:"duration_ms"`
		Error      string `json:"error"`
	}
	var state struct {
		Status  string `json:"status"`
		Tasks   []task `json:"task_results"`
		OfLayer []task `json:"layer_results"`
	}
	err = json.Unmarshal(body, &state)
	p.version = version
	for _, t := range append(state.Tasks, state.OfLayer...) {
		p.print(t.ID, t.Status, t.DurationMS, t.Error)
	}
	return err == nil && state.Status != "running", err
}

// Event prints an event, unless the last state contains it. It reports whether the workflow was paused or has ended.
func (p *Progress) Event(kind string, document []byte) (ended bool, err error) {
	var event struct {
		Data struct {
			Step       string `json:"step"`
			StepStatus string `json:"step_status"`
			DurationMS int64  `json:"duration_ms"`
			Error      string `json:"error"`
			Version    int64  `json:"version"`
		} `json:"data"`
	}
	if err := json.Unmarshal(document, &event); err != nil || event.Data.Version <= p.version {
		return false, err
	}
	if strings.HasPrefix(kind, "workflow.step_") {
		p.print(event.Data.Step, event.Data.StepStatus, event.Data.DurationMS, event.Data.Error)
	}
	return kind == "workflow.paused" || kind == "workflow.ended", nil
}

// print prints the state of a task unless it was printed last.
func (p *Progress) print(task, status string, ms int64, failure string) {
	if status == "pending" || p.shown[task] == status {
		return
	}
	if p.shown == nil {
		p.shown = map[string]string{}
	}
	p.shown[task] = status
	line := task + "  " + status
	if status != "running" && status != "skipped" {
		line += "  " + (time.Duration(ms) * time.Millisecond).String()
	}
	if failure != "" {
		line += "  " + strings.Join(strings.Fields(failure), " ")
	}
	p.Print(line)
}
