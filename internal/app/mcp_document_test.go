package app_test

import (
	"context"
	"encoding/json"

	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"comet/internal/testkit/mcptest"
)

// exampleServers are the servers that the document's examples use.
func exampleServers(t *testing.T) []*mcptest.Server {
	t.Helper()
	text := func(description string, schema string) *mcp.Tool {
		return &mcp.Tool{Description: description, InputSchema: json.RawMessage(schema), Annotations: mcptest.Reads()}
	}
	named := func(name string, d *mcp.Tool) *mcp.Tool { d.Name = name; return d }
	path := `{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`
	files := mcptest.New(t, "filesystem").Tool(named("read_file", text("Read file contents", path)), func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var args struct{ Path string }
		err := json.Unmarshal(r.Params.Arguments, &args)
		res := mcptest.Texts("the contents of " + args.Path)
		res.StructuredContent = map[string]string{"content": "the contents of " + args.Path} // as the filesystem server of npm
		return res, err
	}).Tool(named("read_directory", text("Read the entries of a directory", path)), func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcptest.Texts("a", "b"), nil
	})
	github := mcptest.NewGithub(t).Tool(&mcp.Tool{Name: "create_issue", Description: "Create an issue in a GitHub repository"}, repeats(`"number":1`))
	memory := mcptest.New(t, "memory").Tool(named("search_nodes", text("Search for nodes in the memory", `{"type":"object","properties":{"query":{"type":"string"}}}`)), repeats(`"entities":[]`)).
		Tool(&mcp.Tool{Name: "create_entities", Description: "Create entities in the memory", InputSchema: json.RawMessage(`{"type":"object","properties":{"entities":{"type":"array","items":{"type":"object"}}},"required":["entities"]}`)}, repeats(`"success":true`)).
		Tool(&mcp.Tool{Name: "broken", Description: "Fails by the protocol"}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the disk is full"}
		})
	return []*mcptest.Server{files, github, memory}
}

// xmlServer has the tool that the example of agentcards:replan adds.
func xmlServer(t *testing.T) *mcptest.Server {
	t.Helper()
	return mcptest.New(t, "xml").Tool(&mcp.Tool{
		Name: "parse_files", Description: "Parse XML files", Annotations: mcptest.Reads(),
		InputSchema: json.RawMessage(`{"type":"object","properties":{"discovered_files":{"type":"array","items":{"type":"string"}}},"required":["discovered_files"]}`),
	}, repeats(`"parsed":true`))
}

// repeats adds a tool that returns JSON: a fixed member and its arguments.
func repeats(member string) mcp.ToolHandler {
	return func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcptest.Texts("{" + member + "," + strings.TrimPrefix(string(r.Params.Arguments), "{")), nil
	}
}

// TestMCPTranscripts replays testdata/mcp/*.txtar, in the newest revision and in the last
// with sessions. Transcripts that search have separate servers, because the calls of other clients change the
// usage graph, which ranks tools and determines the confidence of plans. A step has a request (N.request: the
// parameters of tools/call) and an expected response: N.response has its shape, in which the text is JSON or any text; N.values has
// members that the text must contain, N.text the complete text; N.failed has the code of a failed
// call, N.error that of a JSON-RPC error. The ids wf_abc123 and cp_xyz789 in a request stand for those of the
// response before it; a value that begins with ^ is a regular expression.
func TestMCPTranscripts(t *testing.T) {
	t.Parallel()
	all, err := filepath.Glob("testdata/mcp/*.txtar")
	require.NoError(t, err)
	require.Len(t, all, 7)
	common := openHub(t, "sqlite", nil, exampleServers(t)...)
	separate := map[string][]*mcptest.Server{"search_tools": nil, "intents": nil, "replan": {xmlServer(t)}} // with further upstreams
	for _, path := range all {
		name := strings.TrimSuffix(filepath.Base(path), ".txtar")
		for _, revision := range []string{newest, sessions} {
			t.Run(name+"/"+revision, func(t *testing.T) {
				t.Parallel()
				archive, err := txtar.ParseFile(path)
				require.NoError(t, err)
				h := common
				if further, ok := separate[name]; ok {
					h = openHub(t, "sqlite", nil, append(exampleServers(t), further...)...)
				}
				replay(t, h.holder(t, "").speak(t, revision, nil), archive)
			})
		}
	}
}

func replay(t *testing.T, s *mcp.ClientSession, archive *txtar.Archive) {
	t.Helper()
	steps := map[int]map[string]string{}
	for _, f := range archive.Files {
		number, part, _ := strings.Cut(f.Name, ".")
		n, err := strconv.Atoi(number)
		require.NoError(t, err, f.Name)
		if steps[n] == nil {
			steps[n] = map[string]string{}
		}
		steps[n][part] = strings.TrimSpace(string(f.Data))
	}
	ids := map[string]string{}
	for n := 1; n <= len(steps); n++ {
		step := steps[n]
		for printed, id := range ids {
			step["request"] = strings.ReplaceAll(step["request"], printed, id)
		}
		var p struct {
			Name      string
			Arguments map[string]any
		}
		require.NoError(t, json.Unmarshal([]byte(step["request"]), &p), "step %d", n)
		res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: p.Name, Arguments: p.Arguments})
		if want, ok := step["error"]; ok {
			var rpc *jsonrpc.Error
			require.ErrorAs(t, err, &rpc, "step %d", n)
			require.Equal(t, want, fmt.Sprint(rpc.Code), "step %d: %s", n, rpc.Message)
			continue
		}
		require.NoError(t, err, "step %d", n)
		if want, ok := step["failed"]; ok {
			requireFailed(t, want, res)
			continue
		}
		requireAnswer(t, n, step, res)
		for printed, member := range map[string]string{"wf_abc123": "workflow_id", "cp_xyz789": "checkpoint_id"} {
			if found := regexp.MustCompile(`"` + member + `":"(\w+)"`).FindStringSubmatch(mcptest.TextOf(t, res)); found != nil {
				ids[printed] = found[1]
			}
		}
	}
}

// requireAnswer compares a response with the one that the step expects.
func requireAnswer(t *testing.T, n int, step map[string]string, res *mcp.CallToolResult) {
	t.Helper()
	got := mcptest.TextOf(t, res)
	require.False(t, res.IsError, "step %d: %s", n, got)
	var printed struct{ Content []struct{ Type, Text string } }
	require.NoError(t, json.Unmarshal([]byte(step["response"]), &printed), "step %d", n)
	require.Len(t, printed.Content, 1)
	if want, ok := step["text"]; ok {
		require.Equal(t, want, got, "step %d", n)
		return
	}
	var have any
	require.NoError(t, json.Unmarshal([]byte(got), &have), "step %d: %s", n, got)
	require.Empty(t, lacking("", shapeOf(t, printed.Content[0].Text), have), "step %d: %s", n, got)
	names := namesOf(t, printed.Content[0].Text)
	require.Equal(t, names, slices.DeleteFunc(namesOf(t, got), func(name string) bool { return !slices.Contains(names, name) }), "step %d: the order of the members of %s", n, got)
	if structured := res.StructuredContent; structured != nil {
		text, err := json.Marshal(structured)
		require.NoError(t, err)
		require.JSONEq(t, got, string(text), "step %d: text and structured content say the same", n)
	}
	if values, ok := step["values"]; ok {
		var want any
		require.NoError(t, json.Unmarshal([]byte(values), &want), "step %d", n)
		require.Empty(t, differing("", want, have), "step %d: %s", n, got)
	}
}

func shapeOf(t *testing.T, text string) (v any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}

// namesOf returns the names of the members of a JSON object, in their order.
func namesOf(t *testing.T, text string) (names []string) {
	t.Helper()
	dec := jsontext.NewDecoder(strings.NewReader(text))
	_, err := dec.ReadToken()
	require.NoError(t, err)
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		require.NoError(t, err)
		names = append(names, name.String())
		require.NoError(t, dec.SkipValue())
	}
	return names
}

// lacking returns the locations where the shape of a value differs from the printed one: each
// printed member must exist with the same type, and each entry of a list must have the shape of
// every printed entry.
func lacking(at string, printed, have any) (all []string) {
	switch printed := printed.(type) {
	case map[string]any:
		object, ok := have.(map[string]any)
		if !ok {
			return []string{at + " is no object"}
		}
		for name, v := range printed {
			if _, ok := object[name]; !ok {
				all = append(all, at+"/"+name+" is missing")
				continue
			}
			all = append(all, lacking(at+"/"+name, v, object[name])...)
		}
	case []any:
		list, ok := have.([]any)
		switch {
		case !ok:
			return []string{at + " is no list"}
		case len(printed) > 0 && len(list) == 0:
			return []string{at + " is empty"}
		}
		for _, p := range printed {
			for i, v := range list {
				all = append(all, lacking(fmt.Sprint(at, "/", i), p, v)...)
			}
		}
	default:
		if fmt.Sprintf("%T", printed) != fmt.Sprintf("%T", have) {
			all = append(all, fmt.Sprintf("%s is %T, not %T", at, have, printed))
		}
	}
	sort.Strings(all)
	return all
}

// differing returns the locations where a value does not have the expected members. A list must
// begin with the expected entries; an empty expected list matches an empty list only.
func differing(at string, want, have any) (all []string) {
	switch want := want.(type) {
	case map[string]any:
		object, _ := have.(map[string]any)
		for name, v := range want {
			all = append(all, differing(at+"/"+name, v, object[name])...)
		}
	case []any:
		list, ok := have.([]any)
		if !ok || len(list) < len(want) || len(want) == 0 && len(list) > 0 {
			return []string{fmt.Sprintf("%s is %v", at, have)}
		}
		for i, v := range want {
			all = append(all, differing(fmt.Sprint(at, "/", i), v, list[i])...)
		}
	case string:
		text, isText := have.(string)
		if text != want && !(isText && strings.HasPrefix(want, "^") && regexp.MustCompile(want).MatchString(text)) {
			all = append(all, fmt.Sprintf("%s is %v, not %s", at, have, want))
		}
	default:
		if want != have {
			all = append(all, fmt.Sprintf("%s is %v, not %v", at, have, want))
		}
	}
	return all
}
