package envelope

import (
	"bytes"
	"errors"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxTaskID is the longest task id that Head returns, in bytes.
const maxTaskID = 64

// errHeadComplete ends the reading of a message.
var errHeadComplete = errors.New("the head is complete")

// head is what Head returns.
type head struct {
	dec  *jsontext.Decoder
	kind Type
	task string
}

// Head returns the type of a message and the task id in its payload, in lower case, "" for what is
// absent or malformed. It reads only as much of raw as it needs, which is short in most messages;
// the rest may be malformed.
func Head(raw []byte) (kind Type, taskID string) {
	h := head{dec: jsontext.NewDecoder(bytes.NewBuffer(raw))}
	_ = h.readObject(func(name string) (err error) {
		switch name {
		case "type":
			var text string
			text, err = h.readString()
			h.kind = Type(text)
		case "payload":
			err = h.readPayload()
		default:
			err = h.dec.SkipValue()
		}
		return err
	})
	return h.kind, h.task
}

func (h *head) readPayload() error {
	if h.dec.PeekKind() != '{' {
		return h.dec.SkipValue()
	}
	return h.readObject(func(name string) (err error) {
		if name != "task_id" {
			return h.dec.SkipValue()
		}
		text, err := h.readString()
		if len(text) <= maxTaskID {
			h.task = strings.ToLower(text)
		}
		return err
	})
}

// readObject calls read for the value of each member of an object, until the head is complete.
func (h *head) readObject(read func(name string) error) error {
	open, err := h.dec.ReadToken()
	if err == nil && open.Kind() != '{' {
		err = errHeadComplete // there is none
	}
	for err == nil && h.dec.PeekKind() == '"' {
		var name string
		if name, err = h.readString(); err == nil {
			err = read(name)
		}
		if err == nil && h.kind != "" && h.task != "" {
			err = errHeadComplete
		}
	}
	if err == nil {
		_, err = h.dec.ReadToken()
	}
	return err
}

// readString reads the next value and returns its text, "" if it is no string.
func (h *head) readString() (string, error) {
	if h.dec.PeekKind() != '"' {
		return "", h.dec.SkipValue()
	}
	token, err := h.dec.ReadToken()
	if err != nil {
		return "", err
	}
	return token.String(), nil
}
