package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/httpkit"
	"comet/internal/input"
	"comet/internal/mcp/stdio"
	"comet/internal/tools"
	"comet/internal/upstream"
)

const (
	// maxBrackets limits the brackets of a direct call, and so its nesting depth, to what the SDK accepts.
	maxBrackets = 1000
	// sdkMetaPrefix is the prefix of the names in _meta that the protocol defines.
	sdkMetaPrefix = "io.modelcontextprotocol/"
)

// directCall is a tools/call over HTTP that is served without the SDK: a valid request that needs no
// messages other than its response. All other requests, above all invalid ones, are left to the SDK.
type directCall struct {
	id        []byte // as the client wrote it
	key       string // key of the id, equal for equal ids
	name      string
	arguments []byte
	trace     string // the traceparent in _meta
	newest    bool
	session   string // "" in the newest protocol version
	clientCapabilities
	meta mcp.Meta // without reserved members
}

// readDirectCall reads a request, and reports whether it is a direct call.
func readDirectCall(r *http.Request, body []byte) (c directCall, ok bool) {
	version := r.Header.Get("Mcp-Protocol-Version")
	c.newest = version == statelessVersion
	if !c.newest {
		c.session = r.Header.Get("Mcp-Session-Id")
		if c.session == "" || version > statelessVersion || version != "" && !slices.Contains(mcp.SupportedProtocolVersions(), version) {
			return c, false
		}
	}
	if !acceptsDirect(r.Header) || bytes.Count(body, []byte("{"))+bytes.Count(body, []byte("[")) > maxBrackets {
		return c, false
	}
	versioned, method := false, false
	var params []byte
	ok = input.EachMember(body, func(name string, value []byte) bool {
		switch name {
		case "jsonrpc":
			versioned = string(value) == `"2.0"`
		case "method":
			method = string(value) == `"tools/call"`
			return method
		case "id":
			c.id = value
			c.key = requestKey(value)
			return c.key != ""
		case "params":
			params = value
		default:
			return false
		}
		return true
	})
	if !ok || !versioned || !method || c.id == nil || !c.readParams(params) {
		return c, false
	}
	return c, !c.newest || r.Header.Get("Mcp-Method") == "tools/call" && r.Header.Get("Mcp-Name") == c.name
}

// acceptsDirect reports whether the headers are those that most clients send.
func acceptsDirect(h http.Header) bool {
	isJSON, isStream := false, false
	for part := range strings.SplitSeq(h.Get("Accept"), ",") {
		switch strings.TrimSpace(part) {
		case "application/json":
			isJSON = true
		case "text/event-stream":
			isStream = true
		}
	}
	return isJSON && isStream && h.Get("Content-Type") == "application/json" && len(h["Last-Event-Id"]) == 0 && len(h["Accept"]) == 1
}

func (c *directCall) readParams(params []byte) bool {
	described := !c.newest
	ok := input.EachMember(params, func(name string, value []byte) bool {
		switch name {
		case "name":
			c.name, _ = input.JSONString(value)
			return c.name != ""
		case "arguments":
			c.arguments = value
			return true
		case "_meta":
			described = c.readMeta(value)
			return described
		}
		return false
	})
	return ok && described && c.name != ""
}

func (c *directCall) readMeta(meta []byte) bool {
	version, capable := false, false
	ok := input.EachMember(meta, func(name string, value []byte) bool {
		switch {
		case name == "progressToken":
			return false
		case !strings.HasPrefix(name, sdkMetaPrefix):
			if name == "traceparent" {
				c.trace, _ = input.JSONString(value)
			}
			if c.meta == nil {
				c.meta = mcp.Meta{}
			}
			c.meta[name] = json.RawMessage(value)
		case !c.newest, name == mcp.MetaKeyLogLevel: //nolint:staticcheck // clients of all revisions have it
			return false
		case name == mcp.MetaKeyProtocolVersion:
			version = string(value) == `"`+statelessVersion+`"`
		case name == mcp.MetaKeyClientInfo:
			return value[0] == '{' && json.Unmarshal(value, &mcp.Implementation{}) == nil
		case name == mcp.MetaKeyClientCapabilities:
			var has mcp.ClientCapabilities
			capable = value[0] == '{' && json.Unmarshal(value, &has) == nil && json.Unmarshal(value, &c.can) == nil
			c.tasks = hasTasks(has.Extensions)
		}
		return true
	})
	return ok && (!c.newest || version && capable)
}

// serveDirect serves a direct call, and reports whether the request is one.
func (d *Handler) serveDirect(w http.ResponseWriter, r *http.Request, body []byte) bool {
	c, ok := readDirectCall(r, body)
	who, known := r.Context().Value(identityKey{}).(identity)
	if !ok || !known {
		return false
	}
	httpkit.FreeSlot(r) // a call can take minutes
	ctx := r.Context()
	if c.newest {
		if mistake := d.checkParamHeaders(r, c.name, c.arguments); mistake != nil {
			writeRPCError(w, http.StatusBadRequest, json.RawMessage(c.id), mistake)
			return true
		}
	} else { // the call does not end with its request; notifications/cancelled cancels it
		inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		end, duplicate := d.beginCall(c.session, c.key, who.principal.TokenID, cancel)
		switch {
		case duplicate:
			writeRPCError(w, http.StatusBadRequest, json.RawMessage(c.id), stdio.InvalidRequest("duplicate in-flight request ID %s", c.id))
			return true
		case end == nil:
			return false
		}
		defer end()
		ctx = inner
	}
	by := tools.Caller{Principal: who.principal, Source: tools.SourceMCP, Session: c.session}.Traced(r.Header.Get("traceparent")).Traced(c.trace)
	res, err := d.server.callDirectly(ctx, by, c)
	d.server.writeDirect(w, c, res, err)
	return true
}

func (g *Server) callDirectly(ctx context.Context, by tools.Caller, c directCall) (reply toolReply, err error) {
	defer func() { err = g.recovered("tools/call", recover(), err) }()
	return g.callTool(ctx, clientRequest{by: by, name: c.name, newest: c.newest, clientCapabilities: c.clientCapabilities, meta: c.meta}, c.arguments)
}

func (g *Server) writeDirect(w http.ResponseWriter, c directCall, reply toolReply, err error) {
	out := make([]byte, 0, 1024)
	out = append(append(out, `{"jsonrpc":"2.0","id":`...), c.id...)
	status := http.StatusOK
	if err == nil {
		out = append(out, `,"result":`...)
		out, err = g.appendReply(out, c.newest, reply)
	}
	if err != nil {
		if errors.Is(err, context.Canceled) { // a stream without the response, which a cancelled request does not get
			w.Header().Set("Content-Type", "text/event-stream")
			return
		}
		problem := &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
		errors.As(err, &problem)
		g.countFailure(failureCode(problem))
		if c.newest && (problem.Code == jsonrpc.CodeInvalidParams || problem.Code == mcp.CodeMissingRequiredClientCapabilities) {
			status = http.StatusBadRequest
		}
		text, _ := json.Marshal(problem) // cannot fail
		out = append(append(append(append(out[:0], `{"jsonrpc":"2.0","id":`...), c.id...), `,"error":`...), text...)
	}
	out = append(out, '}')
	h := w.Header()
	h["Content-Type"], h["Cache-Control"] = []string{"application/json"}, []string{"no-cache, no-transform"}
	h["Content-Length"] = []string{strconv.Itoa(len(out))}
	w.WriteHeader(status)
	_, _ = w.Write(out)
}

func (g *Server) appendReply(to []byte, newest bool, reply toolReply) ([]byte, error) {
	if reply.task == nil {
		return g.appendResult(to, newest, reply.Result)
	}
	reply.task.Meta = mcp.Meta{mcp.MetaKeyServerInfo: g.serverInfo}
	text, err := json.Marshal(reply.task)
	return append(to, text...), err
}

// appendResult appends a result for a client of the newest protocol version, or of an older one.
func (g *Server) appendResult(to []byte, newest bool, res *upstream.Result) ([]byte, error) {
	info := g.serverInfo
	if !newest {
		info = nil
	}
	if _, _, plain := res.Plain(); plain {
		return res.AppendJSON(to, info), nil
	}
	decoded, err := res.Decoded()
	if err != nil {
		return to, err
	}
	out := *decoded
	kind := "complete"
	if newest {
		if len(out.InputRequests) > 0 || out.RequestState != "" {
			kind = "input_required"
		}
		out.Meta = maps.Clone(out.Meta)
		if out.Meta == nil {
			out.Meta = mcp.Meta{}
		}
		out.Meta[mcp.MetaKeyServerInfo] = info
	}
	text, err := json.Marshal(&out)
	if err != nil || !newest {
		return append(to, text...), err
	}
	return append(fmt.Appendf(to, `{"resultType":%q,`, kind), text[1:]...), nil
}
