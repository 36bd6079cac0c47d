package tools

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/upstream"
)

// Value returns a tool's result as code receives it: the structured content, or the text,
// decoded where it is JSON; several contents are a list. An error of the tool is thrown.
func Value(res *mcp.CallToolResult) (json.RawMessage, error) {
	if res.IsError {
		var texts []string
		for _, c := range res.Content {
			if t, ok := c.(*mcp.TextContent); ok {
				texts = append(texts, t.Text)
			}
		}
		return nil, errors.New(cmp.Or(strings.Join(texts, "\n"), "the tool failed without a message"))
	}
	if res.StructuredContent != nil {
		return json.Marshal(res.StructuredContent)
	}
	if len(res.Content) != 1 {
		return json.Marshal(res.Content)
	}
	t, ok := res.Content[0].(*mcp.TextContent)
	if !ok {
		return json.Marshal(res.Content[0])
	}
	if text := strings.TrimSpace(t.Text); text != "" && strings.ContainsAny(text[:1], `{["`) && json.Valid([]byte(text)) {
		return json.RawMessage(text), nil
	}
	return json.Marshal(t.Text)
}

// withoutServerInfo copies a result of an upstream without the metadata of the upstream's
// protocol revision, which each API adds for its own client.
func withoutServerInfo(res *upstream.Result) *upstream.Result {
	if _, _, plain := res.Plain(); plain {
		return res // it has none
	}
	r, _ := res.Decoded() // it is decoded
	return upstream.NewResult(&mcp.CallToolResult{
		Meta: metaWithoutServerInfo(r.Meta), Content: r.Content, StructuredContent: r.StructuredContent, IsError: r.IsError,
	})
}

// metaWithoutServerInfo copies metadata without the server info: the server is comet.
func metaWithoutServerInfo(m mcp.Meta) mcp.Meta {
	m = maps.Clone(m)
	delete(m, mcp.MetaKeyServerInfo)
	return m
}

// textsOf returns the parts of a result that a model reads, none for nil.
func textsOf(result *upstream.Result) (texts []string) {
	if result == nil {
		return nil
	}
	res := &mcp.CallToolResult{}
	texts, structured, plain := result.Plain()
	if !plain {
		res, _ = result.Decoded() // it is decoded
	}
	for _, c := range res.Content {
		switch c := c.(type) {
		case *mcp.TextContent:
			texts = append(texts, c.Text)
		case *mcp.EmbeddedResource:
			if c.Resource != nil {
				texts = append(texts, c.Resource.Text)
			}
		}
	}
	if strings.Join(texts, "") != "" {
		return texts
	}
	if res.StructuredContent != nil {
		structured, _ = json.Marshal(res.StructuredContent) // nil if it cannot be encoded
	}
	if structured != nil {
		texts = []string{string(structured)}
	}
	return texts
}
