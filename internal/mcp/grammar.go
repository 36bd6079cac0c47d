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

// grammar is how the requests of MCP have to look, by method. Requests are judged by it before
// the SDK reads them, whichever door they come in by: what is wrong is then said in one place,
// and in sentences that name it.
type grammar map[string]*shape

// newGrammar returns the grammar of all revisions.
func newGrammar() grammar {
	ref := shapeOf(reflect.TypeFor[mcp.CompleteReference]()).with("type")
	ref.members["type"].words = []string{"ref/prompt", "ref/resource"}
	complete := shapeOf(reflect.TypeFor[mcp.CompleteParams]()).with("ref", "argument")
	complete.members["ref"] = ref
	complete.members["argument"].with("name")
	level := &shape{kind: isObject, needs: []string{"level"}, members: map[string]*shape{
		"_meta": {kind: isObject},
		"level": {kind: isText, words: []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}},
	}}
	return grammar{
		"initialize":               shapeOf(reflect.TypeFor[mcp.InitializeParams]()).with("protocolVersion"),
		"ping":                     shapeOf(reflect.TypeFor[mcp.PingParams]()),
		"completion/complete":      complete,
		"logging/setLevel":         level,
		"prompts/get":              shapeOf(reflect.TypeFor[mcp.GetPromptParams]()).with("name"),
		"prompts/list":             shapeOf(reflect.TypeFor[mcp.ListPromptsParams]()),
		"resources/list":           shapeOf(reflect.TypeFor[mcp.ListResourcesParams]()),
		"resources/read":           shapeOf(reflect.TypeFor[mcp.ReadResourceParams]()).with("uri"),
		"resources/subscribe":      shapeOf(reflect.TypeFor[mcp.SubscribeParams]()).with("uri"),
		"resources/templates/list": shapeOf(reflect.TypeFor[mcp.ListResourceTemplatesParams]()),
		"resources/unsubscribe":    shapeOf(reflect.TypeFor[mcp.UnsubscribeParams]()).with("uri"),
		"server/discover":          shapeOf(reflect.TypeFor[mcp.DiscoverParams]()),
		"subscriptions/listen":     shapeOf(reflect.TypeFor[mcp.SubscriptionsListenParams]()).with("notifications"),
		"tools/call":               shapeOf(reflect.TypeFor[mcp.CallToolParamsRaw]()).with("name"),
		"tools/list":               shapeOf(reflect.TypeFor[mcp.ListToolsParams]()),
	}
}

// judge is what is wrong with a request, nil for nothing. Methods that nobody knows are not
// its concern.
func (g grammar) judge(req *jsonrpc.Request) *jsonrpc.Error {
	params, known := g[req.Method]
	switch {
	case strings.HasPrefix(req.Method, "notifications/") && req.IsCall():
		return badMessage("%s tells and does not ask: it has no id", clip(req.Method))
	case known && !req.IsCall():
		return badMessage("%s asks for an answer, so it needs an id", req.Method)
	case !known:
		return nil
	case len(bytes.TrimSpace(req.Params)) == 0 || string(bytes.TrimSpace(req.Params)) == "null":
		if len(params.needs) > 0 {
			return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("params.%s is missing", params.needs[0])}
		}
		return nil
	}
	problem := params.wrong("params", bytes.TrimSpace(req.Params))
	if problem == "" && req.Method == "completion/complete" {
		problem = wrongReference(req.Params)
	}
	if problem != "" {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: problem}
	}
	return nil
}

// wrongReference is what is wrong with what is to be completed: the SDK takes a prompt by its
// name and a resource by its URI, and nothing that has both.
func wrongReference(params json.RawMessage) string {
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

// judgeBatch is the answer to a batch in which something is wrong, nil for none: each request
// that is wrong is told so, and the others that nothing is done.
func (g grammar) judgeBatch(batch []byte) (answers []map[string]any) {
	var all []json.RawMessage
	_ = json.Unmarshal(batch, &all) // it is a list
	if len(all) > maxBatch {
		return []map[string]any{errorMessage(nil, badMessage("a batch may have %d messages", maxBatch))}
	}
	wrong := len(all) == 0
	for _, raw := range all {
		msg, err := jsonrpc.DecodeMessage(raw)
		if err != nil {
			id, problem := unreadable(raw)
			answers, wrong = append(answers, errorMessage(rawID(id), problem)), true
			continue
		}
		req, ok := msg.(*jsonrpc.Request)
		if !ok {
			continue
		}
		problem := g.judge(req)
		switch {
		case problem != nil:
			wrong = true
		case req.IsCall():
			problem = badMessage("another message of the batch is wrong, so nothing of it is done")
		default:
			continue
		}
		answers = append(answers, errorMessage(req.ID.Raw(), problem))
	}
	switch {
	case !wrong:
		return nil
	case len(answers) == 0:
		return []map[string]any{errorMessage(nil, badMessage("there is nothing in the batch"))}
	}
	return answers
}

func badMessage(format string, args ...any) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf(format, args...)}
}

// unreadable is what is wrong with a text that is no message, and the id that it has, nil for
// none that can be read.
func unreadable(raw []byte) (id json.RawMessage, problem *jsonrpc.Error) {
	var m map[string]json.RawMessage
	err := json.Unmarshal(raw, &m)
	var broken *json.SyntaxError
	switch {
	case len(strings.TrimSpace(string(raw))) == 0:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: "there is no message"}
	case errors.As(err, &broken):
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: fmt.Sprintf("this is no JSON: it is broken at byte %d", broken.Offset)}
	case err != nil || m == nil:
		return nil, badMessage("a message of JSON-RPC 2.0 is an object")
	}
	if id = m["id"]; len(id) > 0 {
		if is, null := kindOf(id); null || is != isText && is != isNumber {
			id = nil
		}
	}
	return id, wrongMembers(m)
}

// wrongMembers is what is wrong with the members of a message of JSON-RPC.
func wrongMembers(m map[string]json.RawMessage) *jsonrpc.Error {
	has := func(name string) (k kind, there bool) {
		if len(m[name]) == 0 {
			return isAnything, false
		}
		k, null := kindOf(m[name])
		return k, !null
	}
	if string(m["jsonrpc"]) != `"2.0"` {
		return badMessage(`jsonrpc must be "2.0"`)
	}
	method, asks := has("method")
	id, answers := has("id")
	failed, fails := has("error")
	switch {
	case asks && method != isText || !asks && len(m["method"]) > 0:
		return badMessage("method must be a text")
	case answers && id != isText && id != isNumber:
		return badMessage("id must be a text or a number")
	case fails && failed != isObject:
		return badMessage("error must be an object")
	case !asks && !answers:
		return badMessage("the message has neither a method nor the id of a request that it answers")
	}
	return badMessage("this is no message of JSON-RPC 2.0")
}
