package upstream

import (
	"bytes"
	"encoding/json"
	"regexp"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"comet/internal/input"
)

// responseIDOf returns the id of the request that a message over the limit answers. Servers write the
// id of a response before or after its result, so one of the ends has it. It returns false for requests
// and notifications, and where neither end shows the id.
func responseIDOf(o *input.LongText) (jsonrpc.ID, bool) {
	raw, isRequest := idInHead(o.Head)
	if last := trailingID().FindSubmatch(o.Tail); raw == nil && last != nil {
		raw = last[1]
	}
	var id any
	if isRequest || json.Unmarshal(raw, &id) != nil || id == nil {
		return jsonrpc.ID{}, false
	}
	out, err := jsonrpc.MakeID(id)
	return out, err == nil
}

// idInHead reads the members that the head holds in full.
func idInHead(head []byte) (id []byte, isRequest bool) {
	dec := jsontext.NewDecoder(bytes.NewReader(head))
	if token, err := dec.ReadToken(); err != nil || token.Kind() != '{' {
		return nil, false
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return id, false
		}
		key := name.String()
		value, err := dec.ReadValue()
		switch {
		case key == "method":
			return nil, true
		case err != nil:
			return id, false
		case key == "id":
			id = bytes.Clone(value)
		}
	}
	return id, false
}

// trailingID matches an id among the last members of a message. What follows it closes the
// outermost object only, so the id cannot belong to a nested object.
func trailingID() *regexp.Regexp {
	return regexp.MustCompile(`[,{]\s*"id"\s*:\s*(-?\d+|"[^"\\]*")\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$`)
}
