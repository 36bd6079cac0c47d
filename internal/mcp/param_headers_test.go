package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// TestParamHeaders checks the headers Mcp-Param-* of calls, with and without the SDK.
func TestParamHeaders(t *testing.T) {
	t.Parallel()
	s := mcp.NewServer(&mcp.Implementation{Name: "up", Version: "1"}, nil)
	deploy := func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "deployed"}}}, nil
	}
	s.AddTool(&mcp.Tool{Name: "deploy", InputSchema: json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"at":{"type":"object","properties":{"count":{"type":"integer","x-mcp-header":"Count"}}},"dry":{"type":"boolean","x-mcp-header":"Dry"}}}`)},
		deploy)
	s.AddTool(&mcp.Tool{Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)}, deploy)
	h, _ := serveUpstream(t, s, true)
	for _, c := range []struct {
		arguments, mistake string
		header             []string
	}{
		{`{}`, "", nil},
		{`{"region":null}`, "", nil},
		{`{"region":"eu","at":{"count":2},"dry":true}`, "", []string{"Mcp-Param-Region", "eu", "Mcp-Param-Count", "2", "Mcp-Param-Dry", "true"}},
		{`{"region":"Hello"}`, "", []string{"Mcp-Param-Region", "=?base64?SGVsbG8=?="}},
		{`{"region":"SGVsbG8="}`, "", []string{"Mcp-Param-Region", "SGVsbG8="}},
		{`{"region":"=?base64?SGVsbG8="}`, "", []string{"Mcp-Param-Region", "=?base64?SGVsbG8="}},
		{`{"region":"eu"}`, "Mcp-Param-Region is missing", nil},
		{`{"region":"eu"}`, "does not agree with the argument region", []string{"Mcp-Param-Region", "us"}},
		{`{"region":"Hello"}`, "does not agree with the argument region", []string{"Mcp-Param-Region", "=?base64?SGVsbG8?="}},
		{`{"region":"Hello"}`, "does not agree with the argument region", []string{"Mcp-Param-Region", "=?base64?SGVs!!!bG8=?="}},
		{`{}`, "the argument region has none", []string{"Mcp-Param-Region", "eu"}},
		{`{"at":{"count":2}}`, "does not agree with the argument count", []string{"Mcp-Param-Count", "3"}},
	} {
		for _, accept := range []string{"application/json, text/event-stream", sdkAccept} {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__deploy","arguments":%s,%s}}`, c.arguments, meta)
			header := append([]string{"Accept", accept, "Mcp-Protocol-Version", statelessVersion, "Mcp-Method", "tools/call", "Mcp-Name", "up__deploy"}, c.header...)
			r := h.send(t, http.MethodPost, body, header...)
			if c.mistake == "" {
				require.Equal(t, http.StatusOK, r.Status, "%s: %s", c.arguments, r)
				require.Contains(t, r.String(), "deployed")
				continue
			}
			require.Equal(t, http.StatusBadRequest, r.Status, "%s: %s", c.arguments, r)
			require.Contains(t, r.String(), "-32020")
			require.Contains(t, r.String(), c.mistake)
		}
	}
}

// TestParamHeadersOfNumbers checks that numbers are compared exactly, in any notation.
func TestParamHeadersOfNumbers(t *testing.T) {
	t.Parallel()
	nines := strings.Repeat("9", 100)
	for _, c := range []struct {
		argument, header string
		equal            bool
	}{
		{"9007199254740993", "9007199254740993", true},
		{"9007199254740993", "9007199254740992", false},
		{"-18446744073709551617", "-18446744073709551616", false},
		{"2e0", "2.0", true},
		{"0.1", "0.10", true},
		{"0.1", "0.10000000000000000001", false},
		{"1e999999999", "1e999999999", true},
		{nines, nines, true},
		{nines, nines[1:] + "8", false},
		{"1e3000000000", "1", false},
		{"1e99999999999999999999", "1e99999999999999999999", true},
		{"1", "1e3000000000", false},
		{"2", "two", false},
		{"2", "", false},
		{"2", "0x2", false},
		{"2", "Inf", false},
	} {
		require.Equal(t, c.equal, equalsHeader(json.Number(c.argument), c.header), "%s, %s", c.argument, c.header)
	}
}
