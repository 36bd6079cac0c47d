package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// requestSchemas is how the requests of MCP have to look, by method. Requests are judged by it before
// the SDK reads them, whichever door they come in by: what is wrong is then said in one place,
// and in sentences that name it.
type requestSchemas map[string]*schema

// newRequestSchemas returns the grammar of all revisions.
func newRequestSchemas() requestSchemas {
	ref := schemaOf(reflect.TypeFor[mcp.CompleteReference]()).require("type")
	ref.properties["type"].enum = []string{"ref/prompt", "ref/resource"}
	complete := schemaOf(reflect.TypeFor[mcp.CompleteParams]()).require("ref", "argument")
	complete.properties["ref"] = ref
	complete.properties["argument"].require("name")
	level := &schema{kind: kindObject, required: []string{"level"}, properties: map[string]*schema{
		"_meta": {kind: kindObject},
		"level": {kind: kindString, enum: []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}},
	}}
	return requestSchemas{
		"initialize":               schemaOf(reflect.TypeFor[mcp.InitializeParams]()).require("protocolVersion"),
		"ping":                     schemaOf(reflect.TypeFor[mcp.PingParams]()),
		"completion/complete":      complete,
		"logging/setLevel":         level,
		"prompts/get":              schemaOf(reflect.TypeFor[mcp.GetPromptParams]()).require("name"),
		"prompts/list":             schemaOf(reflect.TypeFor[mcp.ListPromptsParams]()),
		"resources/list":           schemaOf(reflect.TypeFor[mcp.ListResourcesParams]()),
		"resources/read":           schemaOf(reflect.TypeFor[mcp.ReadResourceParams]()).require("uri"),
		"resources/subscribe":      schemaOf(reflect.TypeFor[mcp.SubscribeParams]()).require("uri"),
		"resources/templates/list": schemaOf(reflect.TypeFor[mcp.ListResourceTemplatesParams]()),
		"resources/unsubscribe":    schemaOf(reflect.TypeFor[mcp.UnsubscribeParams]()).require("uri"),
		"server/discover":          schemaOf(reflect.TypeFor[mcp.DiscoverParams]()),
		"subscriptions/listen":     schemaOf(reflect.TypeFor[mcp.SubscriptionsListenParams]()).require("notifications"),
		"tools/call":               schemaOf(reflect.TypeFor[mcp.CallToolParamsRaw]()).require("name"),
		"tools/list":               schemaOf(reflect.TypeFor[mcp.ListToolsParams]()),
	}
}

// check is what is wrong with a request, nil for nothing. Methods that nobody knows are not
// its concern.
func (g requestSchemas) check(req *jsonrpc.Request) *jsonrpc.Error {
	params, known := g[req.Method]
	switch {
	case strings.HasPrefix(req.Method, "notifications/") && req.IsCall():
		return invalidRequest("%s tells and does not ask: it has no id", clip(req.Method))
	case known && !req.IsCall():
		return invalidRequest("%s asks for an answer, so it needs an id", req.Method)
	case !known:
		return nil
	case len(bytes.TrimSpace(req.Params)) == 0 || string(bytes.TrimSpace(req.Params)) == "null":
		if len(params.required) > 0 {
			return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("params.%s is missing", params.required[0])}
		}
		return nil
	}
	problem := params.check("params", bytes.TrimSpace(req.Params))
	if problem == "" && req.Method == "completion/complete" {
		problem = checkReference(req.Params)
	}
	if problem != "" {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: problem}
	}
	return nil
}

// checkReference is what is wrong with what is to be completed: the SDK takes a prompt by its
// name and a resource by its URI, and nothing that has both.
func checkReference(params json.RawMessage) string {
	var p struct {
		Ref struct{ Type, Name, URI string }
	}
	_ = json.Unmarshal(params, &p) // its shape is right
	switch {
	case p.Ref.Type == "ref/prompt" && p.Ref.URI != "":
		return "params.ref is a prompt, which has no uri"
	case p.Ref.Type == "ref/resource" && p.Ref.Name != "":
		return "params.ref is a resource, which has no name"
	}
	return ""
}

// maxBatch is how many messages a batch may have: it counts as one request.
const maxBatch = 100

// lastWithBatches is the last revision in which a message may be a list of them.
const lastWithBatches = "2025-03-26"

// checkBatch is the answer to a batch in which something is wrong, nil for none: each request
// that is wrong is told so, and the others that nothing is done.
func (g requestSchemas) checkBatch(batch []byte) (answers []map[string]any) {
	var all []json.RawMessage
	_ = json.Unmarshal(batch, &all) // it is a list
	if len(all) > maxBatch {
		return []map[string]any{errorResponse(nil, invalidRequest("a batch may have %d messages", maxBatch))}
	}
	wrong := len(all) == 0
	for _, raw := range all {
		msg, err := jsonrpc.DecodeMessage(raw)
		if err != nil {
			id, problem := decodeError(raw)
			answers, wrong = append(answers, errorResponse(rawID(id), problem)), true
			continue
		}
		req, ok := msg.(*jsonrpc.Request)
		if !ok {
			continue
		}
		problem := g.check(req)
		switch {
		case problem != nil:
			wrong = true
		case req.IsCall():
			problem = invalidRequest("another message of the batch is wrong, so nothing of it is done")
		default:
			continue
		}
		answers = append(answers, errorResponse(req.ID.Raw(), problem))
	}
	switch {
	case !wrong:
		return nil
	case len(answers) == 0:
		return []map[string]any{errorResponse(nil, invalidRequest("there is nothing in the batch"))}
	}
	return answers
}

func invalidRequest(format string, args ...any) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf(format, args...)}
}

// decodeError is what is wrong with a text that is no message, and the id that it has, nil for
// none that can be read.
func decodeError(raw []byte) (id json.RawMessage, problem *jsonrpc.Error) {
	var m map[string]json.RawMessage
	err := json.Unmarshal(raw, &m)
	var broken *json.SyntaxError
	switch {
	case len(strings.TrimSpace(string(raw))) == 0:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: "there is no message"}
	case errors.As(err, &broken):
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: fmt.Sprintf("this is no JSON: it is broken at byte %d", broken.Offset)}
	case err != nil || m == nil:
		return nil, invalidRequest("a message of JSON-RPC 2.0 is an object")
	}
	if id = m["id"]; len(id) > 0 {
		if is, null := kindOf(id); null || is != kindString && is != kindNumber {
			id = nil
		}
	}
	return id, checkEnvelope(m)
}

// checkEnvelope is what is wrong with the members of a message of JSON-RPC.
func checkEnvelope(m map[string]json.RawMessage) *jsonrpc.Error {
	has := func(name string) (k jsonKind, there bool) {
		if len(m[name]) == 0 {
			return kindAny, false
		}
		k, null := kindOf(m[name])
		return k, !null
	}
	if string(m["jsonrpc"]) != `"2.0"` {
		return invalidRequest(`jsonrpc must be "2.0"`)
	}
	method, asks := has("method")
	id, answers := has("id")
	failed, fails := has("error")
	switch {
	case asks && method != kindString || !asks && len(m["method"]) > 0:
		return invalidRequest("method must be a text")
	case answers && id != kindString && id != kindNumber:
		return invalidRequest("id must be a text or a number")
	case fails && failed != kindObject:
		return invalidRequest("error must be an object")
	case !asks && !answers:
		return invalidRequest("the message has neither a method nor the id of a request that it answers")
	}
	return invalidRequest("this is no message of JSON-RPC 2.0")
}
