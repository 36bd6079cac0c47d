package upstream

import (
	"bytes"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/input"
)

// maxPlainDepth limits the brackets of structured content that is passed on as it is, and so its
// depth, to what the SDK's decoder accepts.
const maxPlainDepth = 1000

// Result is the result of a tool call. A plain result, with only text, structured content and
// metadata, keeps the JSON of the upstream and is passed on as it is; the SDK decodes all others.
type Result struct {
	decoded *mcp.CallToolResult // nil for a plain result

	content, structured, meta []byte // of a plain result; nil for absent members
	texts                     []string
	isError                   bool
}

// NewResult returns a decoded result as a Result, nil for nil.
func NewResult(res *mcp.CallToolResult) *Result {
	if res == nil {
		return nil
	}
	return &Result{decoded: res, isError: res.IsError}
}

func readResult(raw []byte) (*Result, error) {
	if r := (&Result{}); r.readPlain(raw) {
		return r, nil
	}
	res := &mcp.CallToolResult{}
	if err := json.Unmarshal(raw, res); err != nil {
		return nil, err
	}
	return NewResult(res), nil
}

// readPlain reads a plain result, and reports whether raw is one.
func (r *Result) readPlain(raw []byte) bool {
	plain := input.EachMember(raw, func(name string, value []byte) bool {
		switch name {
		case "content":
			r.content = value
			return input.EachElement(value, r.addText)
		case "structuredContent":
			if string(value) != "null" {
				r.structured = value
			}
			return bytes.Count(value, []byte("{"))+bytes.Count(value, []byte("[")) <= maxPlainDepth
		case "isError":
			r.isError = string(value) == "true"
			return value[0] == 't' || value[0] == 'f'
		case "_meta":
			return r.addMeta(value)
		case "resultType":
			return string(value) == `"complete"`
		case "inputRequests", "requestState":
			return false
		}
		return true // the SDK drops it too
	})
	return plain && r.content != nil
}

// addText adds a content, and reports whether it is a text without annotations.
func (r *Result) addText(content []byte) bool {
	var kind, text string
	found := false
	plain := input.EachMember(content, func(name string, value []byte) (known bool) {
		switch name {
		case "type":
			kind, known = input.JSONString(value)
		case "text":
			text, known = input.JSONString(value)
			found = known
		}
		return known
	})
	r.texts = append(r.texts, text)
	return plain && found && kind == "text"
}

// addMeta adds the metadata without the information about the server, because the server is comet.
func (r *Result) addMeta(meta []byte) bool {
	return input.EachMember(meta, func(name string, value []byte) bool {
		if name != mcp.MetaKeyServerInfo {
			r.meta = appendMember(r.meta, name, value)
		}
		return bytes.Count(value, []byte("{"))+bytes.Count(value, []byte("[")) <= maxPlainDepth
	})
}

// appendMember appends a member to those of an object without braces.
func appendMember(to []byte, name string, value []byte) []byte {
	if len(to) > 0 {
		to = append(to, ',')
	}
	key, _ := json.Marshal(name) // a string cannot fail
	return append(append(append(to, key...), ':'), value...)
}

// IsError reports whether the tool failed.
func (r *Result) IsError() bool { return r.isError }

// Plain returns the texts of a plain result and its structured content, nil for none.
func (r *Result) Plain() (texts []string, structured []byte, ok bool) {
	return r.texts, r.structured, r.decoded == nil
}

// Decoded returns the result as a value of the SDK.
func (r *Result) Decoded() (*mcp.CallToolResult, error) {
	if r.decoded != nil {
		return r.decoded, nil
	}
	res := &mcp.CallToolResult{}
	return res, json.Unmarshal(r.AppendJSON(nil, nil), res)
}

// AppendJSON appends a plain result as JSON. serverInfo is comet's description of itself for a client
// of the newest protocol version, whose results also have a resultType; nil for older versions.
func (r *Result) AppendJSON(to, serverInfo []byte) []byte {
	to = append(append(to, `{"content":`...), r.content...)
	if r.structured != nil {
		to = append(append(to, `,"structuredContent":`...), r.structured...)
	}
	if r.isError {
		to = append(to, `,"isError":true`...)
	}
	meta := r.meta
	if serverInfo != nil {
		to = append(to, `,"resultType":"complete"`...)
		meta = appendMember(bytes.Clone(meta), mcp.MetaKeyServerInfo, serverInfo)
	}
	if len(meta) > 0 {
		to = append(append(append(to, `,"_meta":{`...), meta...), '}')
	}
	return append(to, '}')
}
