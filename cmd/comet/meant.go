package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"comet/internal/nearest"
	"comet/openapi/client"
)

// meant adds to an answer that there is no such thing which one was probably meant, or where
// guess knows none, "", what else helps. To look for it is no error: the answer is.
func meant(err error, guess func() string, otherwise string) error {
	var api *apiError
	if errors.As(err, &api) && api.status == http.StatusNotFound {
		api.hint = otherwise
		if word := guess(); word != "" {
			api.hint = "Did you mean " + word + "?"
		}
	}
	return err
}

// upstreamMeant is meant for the id of an MCP server.
func (s *session) upstreamMeant(ctx context.Context, err error, id string) error {
	return meant(err, func() string {
		body, err := s.answer(s.api.ListUpstreams(ctx, nil))
		var all client.UpstreamList
		if err != nil || decode(body, &all) != nil {
			return ""
		}
		ids := make([]string, len(all.Upstreams))
		for i, u := range all.Upstreams {
			ids[i] = u.ID
		}
		word, _ := nearest.Word(id, ids)
		return word
	}, `"comet upstreams list" lists those there are.`)
}

// toolMeant is meant for any name of a tool, also one without its server's.
func (s *session) toolMeant(ctx context.Context, err error, name string) error {
	return meant(err, func() string {
		all, err := s.tools(ctx)
		if err != nil {
			return ""
		}
		return toolLike(name, all)
	}, "")
}

// toolLike is the id of the tool with the name closest to a given one, "" for none.
func toolLike(name string, all []client.ToolView) string {
	ids := map[string]string{} // by each of the tools' names
	for _, t := range all {
		for _, n := range []string{t.Name, t.ListedName, t.ID} {
			ids[n] = t.ID
		}
	}
	if id := ids[name]; id != "" {
		return id
	}
	var names []string
	for _, t := range all { // in their order, which is the same every time
		names = append(names, t.ID, t.ListedName, t.Name)
	}
	word, _ := nearest.Word(name, names)
	return ids[word]
}

// noTool is the answer for a tool that nothing is known of, by its name without the server's;
// names are those that there are, and server is "" for any.
func noTool(server, name string, names []string) error {
	detail := fmt.Sprintf("there is no tool %q", name)
	if server != "" {
		detail = fmt.Sprintf("the upstream %q has no tool %q", server, name)
	}
	err := &apiError{status: http.StatusNotFound, problem: client.Problem{Title: "Not found", Detail: &detail}}
	return meant(err, func() string {
		word, _ := nearest.Word(name, names)
		return word
	}, "")
}

// tools are those that may be called.
func (s *session) tools(ctx context.Context) ([]client.ToolView, error) {
	entries, err := s.pages(0, "tools", func(size int, cursor *string) (*http.Response, error) {
		return s.api.ListTools(ctx, &client.ListToolsParams{Limit: &size, Cursor: cursor})
	})
	out := make([]client.ToolView, len(entries))
	for i, e := range entries {
		if err == nil {
			err = decode(e, &out[i])
		}
	}
	return out, err
}
