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

// requestSchemas maps the methods of MCP to the schemas of their parameters. Requests over HTTP and
// stdio are checked before the SDK reads them, so that errors name the wrong parameter.
type requestSchemas map[string]*schema

// newRequestSchemas returns the schemas of all protocol versions.
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

// check returns the first mistake of a request, nil if there is none. It accepts unknown methods.
func (g requestSchemas) check(req *jsonrpc.Request) *jsonrpc.Error {
	params, known := g[req.Method]
	switch {
	case strings.HasPrefix(req.Method, "notifications/") && req.IsCall():
		return invalidRequest("%s is a notification and must not have an id", clip(req.Method))
	case known && !req.IsCall():
		return invalidRequest("%s is a request and must have an id", req.Method)
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

// checkReference returns the mistake of a completion reference: a prompt has a name only, and a
// resource has a URI only.
func checkReference(params json.RawMessage) string {
	var p struct {
		Ref struct{ Type, Name, URI string }
	}
	_ = json.Unmarshal(params, &p) // the schema was checked before
	switch {
	case p.Ref.Type == "ref/prompt" && p.Ref.URI != "":
		return "params.ref is a prompt and must not have a uri"
	case p.Ref.Type == "ref/resource" && p.Ref.Name != "":
		return "params.ref is a resource and must not have a name"
	}
	return ""
}

// maxBatch limits the messages of a batch, which counts as one request.
const maxBatch = 100

// lastWithBatches is the last protocol version with batches.
const lastWithBatches = "2025-03-26"

// checkBatch returns the responses to a batch with a mistake, nil for a valid batch. Invalid
// requests get their own error; the others get an error that nothing was done.
func (g requestSchemas) checkBatch(batch []byte) (answers []map[string]any) {
	var all []json.RawMessage
	_ = json.Unmarshal(batch, &all) // it is a list
	if len(all) > maxBatch {
		return []map[string]any{errorResponse(nil, invalidRequest("a batch may have at most %d messages", maxBatch))}
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
			problem = invalidRequest("another message of the batch is invalid, so none is processed")
		default:
			continue
		}
		answers = append(answers, errorResponse(req.ID.Raw(), problem))
	}
	switch {
	case !wrong:
		return nil
	case len(answers) == 0:
		return []map[string]any{errorResponse(nil, invalidRequest("the batch is empty"))}
	}
	return answers
}

func invalidRequest(format string, args ...any) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf(format, args...)}
}

// decodeError returns the mistake of an invalid message, and its id, nil if the id cannot be read.
func decodeError(raw []byte) (id json.RawMessage, problem *jsonrpc.Error) {
	var m map[string]json.RawMessage
	err := json.Unmarshal(raw, &m)
	var broken *json.SyntaxError
	switch {
	case len(strings.TrimSpace(string(raw))) == 0:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: "the message is empty"}
	case errors.As(err, &broken):
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: fmt.Sprintf("the message is not valid JSON: error at byte %d", broken.Offset)}
	case err != nil || m == nil:
		return nil, invalidRequest("a JSON-RPC 2.0 message must be an object")
	}
	if id = m["id"]; len(id) > 0 {
		if is, null := kindOf(id); null || is != kindString && is != kindNumber {
			id = nil
		}
	}
	return id, checkEnvelope(m)
}

// checkEnvelope returns the mistake in the members of a JSON-RPC message.
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
		return invalidRequest("method must be a string")
	case answers && id != kindString && id != kindNumber:
		return invalidRequest("id must be a string or a number")
	case fails && failed != kindObject:
		return invalidRequest("error must be an object")
	case !asks && !answers:
		return invalidRequest("the message has neither a method nor the id of a request")
	}
	return invalidRequest("this is not a JSON-RPC 2.0 message")
}

// jsonKind is the kind of a JSON value.
type jsonKind uint8

const (
	kindAny jsonKind = iota
	kindString
	kindBool
	kindNumber
	kindArray
	kindObject
)

// describe returns the kind for an error such as “params.name must be a string”.
func (k jsonKind) describe() string {
	return [...]string{"anything", "a string", "a boolean", "a number", "an array", "an object"}[k]
}

// kindOf returns the kind of a valid JSON value; null has none.
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

// schema describes a value that the SDK can read. The SDK's own errors name Go types instead of
// parameters.
type schema struct {
	kind jsonKind
	// properties are the schemas of the known members of an object; others may be anything.
	properties map[string]*schema
	// items is the schema of the elements of a list, or of all members of an object.
	items *schema
	// required lists the members that must be present.
	required []string
	// enum lists the only valid texts; nil accepts any.
	enum []string
}

// schemaOf returns the schema of the JSON that the SDK reads into a type.
func schemaOf(t reflect.Type) *schema {
	switch t {
	case reflect.TypeFor[json.RawMessage]():
		return &schema{}
	case reflect.TypeFor[mcp.InputResponse](): // its members select the type
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

// require sets the required members of an object.
func (s *schema) require(needs ...string) *schema {
	s.required = needs
	return s
}

// check returns the first mistake of a value with its location, "" if there is none. null counts as
// missing. Every occurrence of a repeated member must be valid.
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
			return at + " is unreadable"
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
