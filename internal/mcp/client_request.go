package mcp

import (
	"context"
	"encoding/json"
	"reflect"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/tools"
	"comet/internal/upstream"
)

// clientRequest is a request that an upstream answers, and what its client can receive meanwhile.
type clientRequest struct {
	by      tools.Caller
	name    string             // of the tool, or what else identifies a request with the reply to a question
	session *mcp.ServerSession // nil for a client that gets only the response
	newest  bool
	clientCapabilities
	meta mcp.Meta
	// answers and state are the reply to questions, "" for none.
	answers mcp.InputResponseMap
	state   string

	// A call with arguments becomes a task after a time, 0 for never. began receives the id of the workflow that it starts.
	arguments json.RawMessage
	after     time.Duration
	began     chan string
}

// clientCapabilities are what a client declares.
type clientCapabilities struct {
	can   upstream.Capabilities
	tasks bool // the Tasks extension
}

func capabilitiesOf(req mcp.Request) (out clientCapabilities) {
	if from, ok := req.(interface {
		ClientCapabilities() *mcp.ClientCapabilities
	}); ok {
		if has := from.ClientCapabilities(); has != nil {
			out.can = upstream.Capabilities{Elicitation: has.Elicitation, Sampling: has.Sampling, Roots: has.RootsV2} //nolint:staticcheck // clients of all revisions have them
			out.tasks = hasTasks(has.Extensions)
		}
	}
	return out
}

func newClientRequest(by tools.Caller, name string, req mcp.Request, answers mcp.InputResponseMap, state string) clientRequest {
	r := clientRequest{by: by, name: name, newest: protocolVersionOf(req) >= statelessVersion, meta: requestMeta(req), answers: answers, state: state, clientCapabilities: capabilitiesOf(req)}
	r.session, _ = req.GetSession().(*mcp.ServerSession)
	return r
}

// toolReply is the reply to a call: its result, or the task that it has become.
type toolReply struct {
	*upstream.Result
	task *taskResult
}

// tasksExtension is the id of the Tasks extension of MCP 2026-07-28 (SEP-2663).
const tasksExtension = "io.modelcontextprotocol/tasks"

// hasTasks reports whether capabilities of a client have the Tasks extension.
func hasTasks(extensions map[string]any) bool { return extensions[tasksExtension] != nil }

// taskResult is CreateTaskResult and the result of tasks/get.
type taskResult struct {
	mcp.ResultBase
	ResultType     string              `json:"resultType"`
	TaskID         string              `json:"taskId"`
	Status         string              `json:"status"`
	StatusMessage  string              `json:"statusMessage,omitempty"`
	CreatedAt      time.Time           `json:"createdAt"`
	LastUpdatedAt  time.Time           `json:"lastUpdatedAt"`
	TTLMs          *int64              `json:"ttlMs"` // null until the task has ended: only ended tasks are deleted
	PollIntervalMs int64               `json:"pollIntervalMs"`
	InputRequests  mcp.InputRequestMap `json:"inputRequests,omitempty"`
	Result         json.RawMessage     `json:"result,omitempty"`
	Error          *jsonrpc.Error      `json:"error,omitempty"`
}

// askSession returns the function that asks the client of a session on the stream of the request with this context.
func askSession(request context.Context, s *mcp.ServerSession) askFunc {
	return func(asking context.Context, questions mcp.InputRequestMap) (mcp.InputResponseMap, error) {
		ctx, cancel := context.WithCancel(request)
		defer cancel()
		defer context.AfterFunc(asking, cancel)()
		if o, ok := request.Value(openingKey{}).(*opening); ok {
			defer context.AfterFunc(o.asking, cancel)()
		}
		answers := mcp.InputResponseMap{}
		for name, question := range questions {
			var err error
			switch q := question.(type) {
			case *mcp.ElicitParams:
				answers[name], err = s.Elicit(ctx, q)
			case *mcp.CreateMessageWithToolsParams: //nolint:staticcheck // clients of all revisions have it
				answers[name], err = s.CreateMessageWithTools(ctx, q) //nolint:staticcheck // clients of all revisions have it
			case *mcp.ListRootsParams: //nolint:staticcheck // clients of all revisions have it
				answers[name], err = s.ListRoots(ctx, q) //nolint:staticcheck // clients of all revisions have it
			}
			if err != nil {
				return nil, err
			}
		}
		return answers, nil
	}
}

// protocolVersionOf returns the protocol version of a request, "" if the request has none.
func protocolVersionOf(req mcp.Request) string {
	if r, ok := req.(interface{ ProtocolVersion() string }); ok {
		return r.ProtocolVersion()
	}
	return ""
}

// callerKey is the context key of the caller. The SDK's subscription requests do not contain it.
type callerKey struct{}

// requestMeta returns the _meta of a request, nil if it has none.
func requestMeta(req mcp.Request) mcp.Meta {
	if p := req.GetParams(); p != nil && !reflect.ValueOf(p).IsNil() {
		return p.GetMeta()
	}
	return nil
}
