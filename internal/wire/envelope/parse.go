package envelope

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
)

// Parse parses an envelope. An error is an *Error that names every problem. The envelope then
// contains the members around the payload that could be read, so that a reply can echo them; for
// malformed JSON these are the members before the error.
//
// Unknown members are ignored. null is valid only where the document allows it. The raw parts of
// the envelope are slices of data, which must not be changed while they are used.
func Parse(data []byte) (Envelope, error) {
	members, problem := readDocument(data)
	r := &parser{}
	top := object{parser: r, members: members}
	e := top.envelope()
	if problem != nil {
		return e, invalid(*problem)
	}
	if v := e.ProtocolVersion; v != "" && v != Version {
		p := Problem{Field: "protocol_version", Detail: "protocol_version must be " + Version + ", not " + v}
		return e, &Error{Problems: []Problem{p}, Failure: UnsupportedVersion(v, []string{Version})}
	}
	e.Raw = top.raw("payload", required)
	if e.Raw != nil && e.Type != "" {
		payload, _ := top.inner("payload", required)
		e.Payload = payload.payload(e.Type)
	}
	e.Custom = top.raw("x_custom_fields", optional)
	if len(r.problems) > 0 {
		e.Payload = nil
		return e, invalid(r.problems...)
	}
	return e, nil
}

// envelope reads the members around the payload.
func (o *object) envelope() Envelope {
	// The type decides whether the ids may be nil, but problems follow the order of the document.
	kind := o.find("type").value
	isError := kind != nil && kindOf(kind) == '"' && string(unquote(kind)) == string(TypeError)
	return Envelope{
		ProtocolVersion: o.matching("protocol_version", "two numbers with a full stop between them, such as "+Version, versionPattern.Match),
		MessageID:       o.uuid("message_id", false),
		From:            o.agentType("from_agent"),
		To:              o.agentType("to_agent"),
		Timestamp:       o.time("timestamp"),
		TraceID:         o.uuid("trace_id", isError),
		RequestID:       o.uuid("request_id", isError),
		Type:            oneOf(o, "type", TypeWorkRequest, TypeWorkStatus, TypeWorkResult, TypeError),
	}
}

func (o *object) agentType(name string) string {
	return o.matching(name, "an agent type (orchestrator, infra, desktop, code, research or another word of lower-case letters, digits, - and _)", agentTypePattern.Match)
}

func (o *object) payload(t Type) Payload {
	switch t {
	case TypeWorkRequest:
		return o.workRequest()
	case TypeWorkStatus:
		if o.find("agent_id").value != nil && o.find("task_id").value == nil {
			return o.heartbeat()
		}
		return o.workStatus()
	case TypeWorkResult:
		return o.workResult()
	case TypeError:
		return o.failure()
	}
	return nil
}

func (o *object) taskID() uuid.UUID { return o.uuid("task_id", false) }

// maxTaskID is the longest task id that Head returns, in bytes.
const maxTaskID = 64

// Head returns the type of a message and the task id in its payload, in lower case, "" for what is
// absent or malformed. It reads only as much of raw as it needs; the rest may be malformed.
func Head(raw []byte) (kind Type, taskID string) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw))
	if dec.PeekKind() != '{' {
		return "", ""
	}
	for kind == "" || taskID == "" {
		token, err := dec.ReadToken()
		if err != nil {
			break
		}
		depth := dec.StackDepth()
		if in, n := dec.StackIndex(depth); in != '{' || n%2 == 0 || token.Kind() != '"' {
			continue // no name
		}
		name := token.String()
		if depth == 1 && name == "payload" {
			continue // to its members
		}
		value, err := dec.ReadValue()
		if err != nil {
			break
		}
		if value.Kind() != '"' {
			continue
		}
		switch text := string(unquote(value)); {
		case depth == 1 && name == "type":
			kind = Type(text)
		case depth == 2 && name == "task_id" && len(text) <= maxTaskID: // other objects are skipped
			taskID = strings.ToLower(text)
		}
	}
	return kind, taskID
}
