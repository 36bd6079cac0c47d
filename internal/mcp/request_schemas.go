package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
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

// jsonKind is what a value of a message may be.
type jsonKind uint8

const (
	kindAny jsonKind = iota
	kindString
	kindBool
	kindNumber
	kindArray
	kindObject
)

// describe is the kind in a sentence: “params.name must be a text”.
func (k jsonKind) describe() string {
	return [...]string{"anything", "a text", "true or false", "a number", "a list", "an object"}[k]
}

// kindOf is what a valid value of JSON is; null has none.
func kindOf(raw json.RawMessage) (k jsonKind, null bool) {
	switch raw[0] {
	case 'n':
		return kindAny, true
	case '"':
		return kindString, false
	case 't', 'f':
		return kindBool, false
	case '[':
		return kindArray, false
	case '{':
		return kindObject, false
	}
	return kindNumber, false
}

// schema is what a value has to look like so that the SDK can read it. What it cannot read it
// refuses in the words of its library, which are about Go and not about the message.
type schema struct {
	kind jsonKind
	// properties are those of an object that have a shape of their own; others may be anything.
	properties map[string]*schema
	// items is what is in a list, or in an object whose members have no names of their own.
	items *schema
	// required are the members that have to be there.
	required []string
	// enum are the only texts that there may be; nil for any.
	enum []string
}

// schemaOf is the shape of what the SDK reads into a type.
func schemaOf(t reflect.Type) *schema {
	switch t {
	case reflect.TypeFor[json.RawMessage]():
		return &schema{}
	case reflect.TypeFor[mcp.InputResponse](): // it is told by its members which one it is
		s := schemaOf(reflect.TypeFor[mcp.ElicitResult]())
		root := &schema{kind: kindObject, properties: map[string]*schema{"_meta": {kind: kindObject}, "uri": {kind: kindString}, "name": {kind: kindString}}}
		s.properties["roots"] = &schema{kind: kindArray, items: root}
		return s.require("action")
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.String:
		return &schema{kind: kindString}
	case reflect.Bool:
		return &schema{kind: kindBool}
	case reflect.Int, reflect.Int64, reflect.Float64:
		return &schema{kind: kindNumber}
	case reflect.Slice:
		return &schema{kind: kindArray, items: schemaOf(t.Elem())}
	case reflect.Map:
		return &schema{kind: kindObject, items: schemaOf(t.Elem())}
	case reflect.Struct:
		s := &schema{kind: kindObject, properties: map[string]*schema{}}
		s.addProperties(t)
		return s
	}
	return &schema{}
}

func (s *schema) addProperties(t reflect.Type) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			s.addProperties(f.Type)
		case f.IsExported() && name != "" && name != "-":
			s.properties[name] = schemaOf(f.Type)
		}
	}
}

// require is the shape of an object that has to have some members.
func (s *schema) require(needs ...string) *schema {
	s.required = needs
	return s
}

// check is what is wrong with a value, in a sentence that names where; "" for nothing. null is
// the same as nothing. A member that comes twice has to be right twice.
func (s *schema) check(at string, raw json.RawMessage) string {
	is, null := kindOf(raw)
	switch {
	case null || s.kind == kindAny:
		return ""
	case is != s.kind:
		return fmt.Sprintf("%s must be %s", at, s.kind.describe())
	case s.kind == kindString && s.enum != nil:
		var word string
		if err := json.Unmarshal(raw, &word); err != nil || !slices.Contains(s.enum, word) {
			return fmt.Sprintf("%s must be one of %s", at, strings.Join(s.enum, ", "))
		}
	case s.kind == kindArray && s.items.kind != kindAny:
		return s.checkArray(at, raw)
	case s.kind == kindObject && (s.properties != nil || s.items != nil && s.items.kind != kindAny):
		return s.checkObject(at, raw)
	}
	return ""
}

func (s *schema) checkArray(at string, raw json.RawMessage) string {
	var values []json.RawMessage
	_ = json.Unmarshal(raw, &values) // it is a list
	for i, value := range values {
		if problem := s.items.check(fmt.Sprintf("%s[%d]", at, i), value); problem != "" {
			return problem
		}
	}
	return ""
}

func (s *schema) checkObject(at string, raw json.RawMessage) string {
	missing := slices.Clone(s.required)
	values := json.NewDecoder(bytes.NewReader(raw))
	_, _ = values.Token() // the brace; all of it is valid
	for values.More() {
		token, _ := values.Token()
		name, _ := token.(string)
		var value json.RawMessage
		if values.Decode(&value) != nil {
			return at + " cannot be read"
		}
		of := s.items
		if s.properties != nil {
			of = s.properties[name]
		}
		if of == nil {
			continue
		}
		if problem := of.check(at+"."+clip(strings.ToValidUTF8(name, "?")), value); problem != "" {
			return problem
		}
		if string(value) != "null" {
			missing = slices.DeleteFunc(missing, func(other string) bool { return other == name })
		}
	}
	if len(missing) > 0 {
		return fmt.Sprintf("%s.%s is missing", at, missing[0])
	}
	return ""
}
