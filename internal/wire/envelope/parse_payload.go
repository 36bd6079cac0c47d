package envelope

import (
	"encoding/json"
	"math"
)

func (o *object) workRequest() WorkRequest {
	p := WorkRequest{
		TaskID:   o.taskID(),
		WorkType: o.matching("work_type", "the name of a capability (at most 128 letters, digits and _.:/-)", workTypePattern.Match),
	}
	p.Parameters = o.raw("parameters", p.WorkType != WorkTypeCancel)
	if hints, ok := o.inner("hints", optional); ok {
		p.Hints = hints.hints()
	}
	return p
}

func (o *object) hints() Hints {
	h := Hints{
		MaxDurationSeconds: o.integer("max_duration_seconds", optional, 1, maxHint),
		MaxMemoryMB:        o.integer("max_memory_mb", optional, 1, maxHint),
		MaxTokens:          o.integer("max_tokens", optional, 1, MaxTokens),
	}
	for _, m := range o.members {
		switch string(m.name) {
		case "max_duration_seconds", "max_memory_mb", "max_tokens":
		default:
			h.Other = append(h.Other, Member{Name: string(m.name), Value: m.value})
		}
	}
	return h
}

func (o *object) workStatus() WorkStatus {
	p := WorkStatus{
		TaskID:   o.taskID(),
		Status:   oneOf(o, "status", StatusRunning, StatusStepCompleted, StatusPaused),
		Progress: int(o.integer("progress_percent", required, 0, 100)),
	}
	if step, ok := o.inner("step", optional); ok {
		p.Step = step.step()
	}
	return p
}

func (o *object) step() *Step {
	s := &Step{
		Number: int(o.integer("number", required, 0, maxStep)),
		Name:   o.nulFreeText("name"),
		Output: o.text("output", optional),
	}
	if value := o.value("output_chunk", optional, '"'); value != nil {
		var err error
		if s.Chunk, err = parseRange(string(unquote(value))); err != nil {
			o.report("output_chunk", "%s", err)
		}
	}
	return s
}

func (o *object) heartbeat() Heartbeat {
	return Heartbeat{
		AgentID: o.matching("agent_id", "an agent's id (at most 64 lower-case letters and digits with single hyphens between them)", isAgentID),
		Status:  oneOf(o, "status", PresenceOnline, PresenceOffline, PresenceBusy),
		Load:    o.count("load", 100),
		Queue:   o.count("queue", maxHint),
	}
}

func (o *object) workResult() WorkResult {
	p := WorkResult{
		TaskID: o.taskID(),
		Status: oneOf(o, "status", OutcomeSuccess, OutcomeFailed, OutcomeCompleted, OutcomeCancelled),
	}
	p.ExitCode = o.exitCode(p.Status)
	p.Output = o.text("output", optional)
	if used, ok := o.inner("resources_used", optional); ok {
		p.Resources = Resources{
			DurationSeconds: used.integer("duration_seconds", optional, 0, math.MaxInt64),
			GPUVRAMMB:       used.integer("gpu_vram_mb", optional, 0, math.MaxInt64),
			CPUTimeMS:       used.integer("cpu_time_ms", optional, 0, math.MaxInt64),
			Tokens:          used.integer("tokens", optional, 0, MaxTokens),
		}
	}
	return p
}

// exitCode reads the exit code, which must not contradict the status.
func (o *object) exitCode(status Outcome) int64 {
	before := len(o.parser.problems)
	code := o.integer("exit_code", required, 0, maxExitCode)
	switch {
	case len(o.parser.problems) > before:
	case status == OutcomeFailed && code == 0:
		o.report("exit_code", "must not be 0 if the status is %s", status)
	case (status == OutcomeSuccess || status == OutcomeCompleted) && code != 0:
		o.report("exit_code", "must be 0 if the status is %s, not %d", status, code)
	}
	return code
}

func (o *object) failure() Failure {
	f := Failure{
		Code:    Code(o.integer("error_code", required, int64(minCode), int64(maxCode))),
		Message: o.nulFreeText("error_message"),
	}
	fields := f.Code.context()
	f.Context = o.raw("error_context", len(fields) > 0)
	if f.Context == nil {
		return f
	}
	context, _ := o.inner("error_context", optional)
	for _, field := range fields {
		context.check(field)
	}
	return f
}

// check checks a member of an error's context.
func (o *object) check(f contextField) {
	if value := o.find(f.name).value; f.nullable && (value == nil || kindOf(value) == 'n') {
		return
	}
	switch f.kind {
	case contextText:
		o.value(f.name, required, '"')
	case contextTexts:
		array := o.value(f.name, required, '[')
		if array == nil {
			return
		}
		var values []json.RawMessage
		_ = json.Unmarshal(array, &values) // array is valid
		for _, value := range values {
			if kindOf(value) != '"' {
				o.report(f.name, "must contain only strings, not %s", describeValue(value))
				return
			}
		}
	case contextCount:
		o.integer(f.name, required, 0, math.MaxInt64)
	case contextNumber:
		o.integer(f.name, required, math.MinInt64, math.MaxInt64)
	case contextTime:
		o.time(f.name)
	}
}
