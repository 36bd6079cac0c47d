package mcp

import (
	stdjson "encoding/json"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/input"
	"comet/internal/mcp/stdio"
)

const (
	// statelessVersion is the first protocol version without sessions.
	statelessVersion = stdio.StatelessVersion
	// lastWithBatches is the last protocol version with batches.
	lastWithBatches = "2025-03-26"
	// maxBatch limits the messages of a batch, which counts as one request.
	maxBatch = 100
)

// The methods of the Tasks extension.
const (
	getTask    = "tasks/get"
	updateTask = "tasks/update"
	cancelTask = "tasks/cancel"
)

// taskParams are the parameters of these methods.
type taskParams struct {
	mcp.ParamsBase
	TaskID string `json:"taskId"`
	// InputResponses are those of tasks/update, by the keys of the questions.
	InputResponses map[string]stdjson.RawMessage `json:"inputResponses"`
}

// paramsCheck returns the mistake in the parameters of a method, "" for none.
type paramsCheck func(params []byte) string

// requestChecker has the checks of all methods. Requests over HTTP and stdio are checked before the SDK
// reads them, because its errors name Go types instead of parameters.
type requestChecker map[string]paramsCheck

func newRequestChecker() requestChecker {
	return requestChecker{
		"initialize":          paramsOf(func(p *mcp.InitializeParams) string { return required("protocolVersion", p.ProtocolVersion) }),
		"ping":                paramsOf[mcp.PingParams](nil),
		"completion/complete": paramsOf(checkCompletion),
		"logging/setLevel": paramsOf(func(p *mcp.SetLoggingLevelParams) string { //nolint:staticcheck // revision 2025-11-25 has it
			return oneOf("level", string(p.Level), "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
		}),
		"prompts/get": paramsOf(func(p *mcp.GetPromptParams) string {
			return required("name", p.Name) + checkResponses(p.InputResponses)
		}),
		"prompts/list":   paramsOf[mcp.ListPromptsParams](nil),
		"resources/list": paramsOf[mcp.ListResourcesParams](nil),
		"resources/read": paramsOf(func(p *mcp.ReadResourceParams) string {
			return required("uri", p.URI) + checkResponses(p.InputResponses)
		}),
		"resources/subscribe":      paramsOf(func(p *mcp.SubscribeParams) string { return required("uri", p.URI) }),
		"resources/unsubscribe":    paramsOf(func(p *mcp.UnsubscribeParams) string { return required("uri", p.URI) }),
		"resources/templates/list": paramsOf[mcp.ListResourceTemplatesParams](nil),
		"server/discover":          paramsOf[mcp.DiscoverParams](nil),
		"subscriptions/listen": paramsOf(func(p *mcp.SubscriptionsListenParams) string {
			if p.Notifications == nil {
				return "params.notifications is missing"
			}
			return ""
		}),
		"tools/call": paramsOf(func(p *mcp.CallToolParamsRaw) string {
			if mistake := identifier("requestState", p.RequestState); mistake != "" && p.RequestState != "" {
				return mistake
			}
			return required("name", p.Name) + checkResponses(p.InputResponses)
		}),
		"tools/list": paramsOf[mcp.ListToolsParams](nil),
		getTask:      paramsOf(func(p *taskParams) string { return identifier("taskId", p.TaskID) }),
		cancelTask:   paramsOf(func(p *taskParams) string { return identifier("taskId", p.TaskID) }),
		updateTask: paramsOf(func(p *taskParams) string {
			if mistake := identifier("taskId", p.TaskID); mistake != "" || p.InputResponses != nil {
				return mistake
			}
			return "params.inputResponses is missing"
		}),
	}
}

// paramsOf returns the check for parameters of type T. rest checks more, nil for nothing.
func paramsOf[T any](rest func(*T) string) paramsCheck {
	return func(params []byte) string {
		var p T
		if err := json.Unmarshal(params, &p, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true), json.WithUnmarshalers(lenient())); err != nil {
			return describeMistake(err)
		}
		if rest == nil {
			return ""
		}
		return rest(&p)
	}
}

// lenient returns the decoders of types whose own decoders return errors without a location.
func lenient() *json.Unmarshalers {
	return json.JoinUnmarshalers(
		json.UnmarshalFromFunc(func(from *jsontext.Decoder, ref *mcp.CompleteReference) error {
			type plain mcp.CompleteReference
			return json.UnmarshalDecode(from, (*plain)(ref))
		}),
		json.UnmarshalFromFunc(func(from *jsontext.Decoder, responses *mcp.InputResponseMap) error {
			var list map[string]struct {
				mcp.ElicitResult
				Roots []mcp.Root `json:"roots"` //nolint:staticcheck // revision 2025-11-25 has it
				Role  string     `json:"role"`  // of a model's message
			}
			err := json.UnmarshalDecode(from, &list)
			*responses = mcp.InputResponseMap{}
			for name, r := range list {
				if r.Roots == nil && r.Role == "" {
					(*responses)[name] = &r.ElicitResult
				}
			}
			return err
		}),
	)
}

func required(name, value string) string {
	if value == "" {
		return "params." + name + " is missing"
	}
	return ""
}

// identifier checks a value that names something stored.
func identifier(name, value string) string {
	if len(value) > 128 || strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "params." + name + " must be at most 128 printable ASCII characters"
	}
	return required(name, value)
}

func oneOf(name, value string, words ...string) string {
	if value != "" && !slices.Contains(words, value) {
		return "params." + name + " must be one of " + strings.Join(words, ", ")
	}
	return required(name, value)
}

// checkCompletion checks a reference: a prompt has only a name, and a resource only a URI.
func checkCompletion(p *mcp.CompleteParams) string {
	if p.Ref == nil {
		return "params.ref is missing"
	}
	if mistake := oneOf("ref.type", p.Ref.Type, "ref/prompt", "ref/resource"); mistake != "" {
		return mistake
	}
	switch {
	case p.Ref.Type == "ref/prompt" && p.Ref.URI != "":
		return "params.ref is a prompt and must not have a uri"
	case p.Ref.Type == "ref/resource" && p.Ref.Name != "":
		return "params.ref is a resource and must not have a name"
	}
	return required("argument.name", p.Argument.Name)
}

func checkResponses(list mcp.InputResponseMap) string {
	for name, r := range list {
		if e, ok := r.(*mcp.ElicitResult); ok && e.Action == "" {
			return required("inputResponses."+printable(name)+".action", "")
		}
	}
	return ""
}

// printable returns a name of a client for a sentence.
func printable(name string) string { return input.Clip(strings.ToValidUTF8(name, "?")) }

// describeMistake returns a sentence with the location of a value of the wrong type.
func describeMistake(err error) string {
	at := "params"
	e, ok := errors.AsType[*json.SemanticError](err)
	if !ok || e.GoType == nil {
		return at + " is unreadable"
	}
	for token := range e.JSONPointer.Tokens() {
		if _, err := strconv.Atoi(token); err == nil {
			at += "[" + token + "]"
		} else {
			at += "." + printable(token)
		}
	}
	nouns := map[reflect.Kind]string{reflect.String: "a string", reflect.Bool: "a boolean", reflect.Slice: "an array", reflect.Int: "a number", reflect.Int64: "a number", reflect.Float64: "a number"}
	if noun, ok := nouns[e.GoType.Kind()]; ok {
		return at + " must be " + noun
	}
	return at + " must be an object"
}

func unknownMethod(name, where string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "unknown method " + input.Quote(name) + where}
}

// check returns the mistake of a request, nil for none. It accepts unknown notifications.
func (c requestChecker) check(req *jsonrpc.Request) *jsonrpc.Error {
	check, known := c[req.Method]
	switch {
	case strings.HasPrefix(req.Method, "notifications/") && req.IsCall():
		return stdio.InvalidRequest("%s is a notification and must not have an id", input.Clip(req.Method))
	case known && !req.IsCall():
		return stdio.InvalidRequest("%s is a request and must have an id", req.Method)
	case !known && req.IsCall():
		return unknownMethod(req.Method, "")
	case !known:
		return nil
	}
	params := []byte(req.Params)
	if len(params) == 0 {
		params = []byte("{}")
	}
	if mistake := check(params); mistake != "" {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: mistake}
	}
	return nil
}

// checkMessage decodes a message and returns the reply to an invalid one. req is nil for responses.
func (c requestChecker) checkMessage(raw []byte) (req *jsonrpc.Request, reply map[string]any) {
	msg, err := jsonrpc.DecodeMessage(raw)
	if err != nil {
		id, mistake := stdio.DecodeError(raw)
		return nil, stdio.ErrorResponse(id, mistake)
	}
	req, ok := msg.(*jsonrpc.Request)
	if !ok {
		return nil, nil
	}
	if mistake := c.check(req); mistake != nil {
		return req, stdio.ErrorResponse(req.ID.Raw(), mistake)
	}
	return req, nil
}

// checkBatch returns the responses to a batch with a mistake, nil for a valid batch. Invalid
// requests get their own error; the others get an error that nothing was done.
func (c requestChecker) checkBatch(batch []stdjson.RawMessage) (replies []map[string]any) {
	switch {
	case len(batch) > maxBatch:
		return []map[string]any{stdio.ErrorResponse(nil, stdio.InvalidRequest("a batch may have at most %d messages", maxBatch))}
	case len(batch) == 0:
		return []map[string]any{stdio.ErrorResponse(nil, stdio.InvalidRequest("the batch is empty"))}
	}
	wrong := false
	for _, raw := range batch {
		req, reply := c.checkMessage(raw)
		switch {
		case reply != nil:
			replies, wrong = append(replies, reply), true
		case req != nil && req.IsCall():
			replies = append(replies, stdio.ErrorResponse(req.ID.Raw(), stdio.InvalidRequest("another message of the batch is invalid, so none is processed")))
		}
	}
	if !wrong {
		return nil
	}
	return replies
}

func (c requestChecker) checkLine(line []byte, batches bool) (requests int, reply any) {
	list := []stdjson.RawMessage{line}
	if line[0] == '[' && stdjson.Unmarshal(line, &list) == nil {
		if !batches {
			return 0, stdio.ErrorResponse(nil, stdio.InvalidRequest("this protocol version has no batches: send one message per line"))
		}
		if replies := c.checkBatch(list); replies != nil {
			return 0, replies
		}
	}
	for _, raw := range list {
		req, reply := c.checkMessage(raw)
		if reply != nil {
			return 0, reply
		}
		if req != nil && req.IsCall() && req.Method != "subscriptions/listen" { // which lasts until the end
			requests++
		}
	}
	return requests, nil
}
