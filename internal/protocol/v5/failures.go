package v5

import (
	"encoding/json"

	"comet/internal/orchestrator"
	wire "comet/internal/wire/v5"
	"comet/models"
)

// failureDetail is what is kept of an agent's E, so that its asker gets the same.
type failureDetail struct {
	Code wire.Code `json:"code,omitempty"`
	Data wire.Data `json:"data,omitempty"`
}

// coreFailure is what a code means to the core (PROTOCOL_V5 §8.2).
func coreFailure(c wire.Code) orchestrator.Failure {
	switch c {
	case wire.E17:
		return orchestrator.FailureBudget
	case wire.E18:
		return orchestrator.FailureQuestions
	case wire.E19:
		return orchestrator.FailureUnsupported
	case wire.E30:
		return orchestrator.FailureUnavailable
	case wire.E31:
		return orchestrator.FailureSaturated
	case wire.E32:
		return orchestrator.FailureResource
	}
	switch {
	case c.Class() == wire.ClassRetry:
		return orchestrator.FailureTimeout
	case c.Class() == wire.ClassNever && c < wire.E20:
		return orchestrator.FailureInvalid
	}
	return orchestrator.FailureWork
}

// errorCode is the code of a task that failed: its agent's own where it was said in this
// protocol, and otherwise that of the core's failure.
func errorCode(t models.Task, d failureDetail) wire.Code {
	if d.Code != "" && string(coreFailure(d.Code)) == t.ErrorCode {
		return d.Code
	}
	switch orchestrator.Failure(t.ErrorCode) {
	case orchestrator.FailureTimeout:
		if t.Attempt == 0 {
			return wire.E20
		}
		return wire.E21
	case orchestrator.FailureUnavailable:
		return wire.E30
	case orchestrator.FailureSaturated:
		return wire.E31
	case orchestrator.FailureResource:
		return wire.E32
	case orchestrator.FailureBudget:
		return wire.E17
	case orchestrator.FailureUnsupported:
		return wire.E19
	case orchestrator.FailureInvalid:
		return wire.E10
	case orchestrator.FailureQuestions:
		return wire.E18
	case orchestrator.FailureUnanswered:
		return wire.E23
	case orchestrator.FailureWork:
	}
	return wire.E99
}

// readFailureDetail reads what was kept; another dialect may have kept something else.
func readFailureDetail(t models.Task) (d failureDetail) {
	_ = json.Unmarshal(t.Detail, &d)
	return d
}
