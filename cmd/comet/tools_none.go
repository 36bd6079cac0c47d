package main

import (
	"context"
	"slices"

	"comet/openapi/client"
)

// ownServers are those that comet is itself: they have tools and are no upstreams.
func ownServers() []string { return []string{"agentcards", "comet"} }

// showNone answers for an MCP server of which no tool can be called: with an empty list for
// programs, with how it stands for people, and with an error where there is none.
func (s *session) showNone(ctx context.Context, id string) error {
	if err := s.known(ctx, id); err != nil {
		return err
	}
	return s.out.show([]byte(`{"tools": []}`), func() error { return s.noteNone(ctx, id) })
}

// known returns the error for the id of an MCP server that there is not.
func (s *session) known(ctx context.Context, id string) error {
	if slices.Contains(ownServers(), id) {
		return nil
	}
	_, err := s.answer(s.api.GetUpstream(ctx, id, nil))
	return s.upstreamMeant(ctx, err, id)
}

// noteNone says how an MCP server stands of which no tool can be called.
func (s *session) noteNone(ctx context.Context, id string) error {
	if slices.Contains(ownServers(), id) {
		say(s.notes, "%s has no tools that you may call", id)
		return nil
	}
	body, err := s.answer(s.api.GetUpstream(ctx, id, nil))
	if err != nil {
		return s.upstreamMeant(ctx, err, id)
	}
	var u client.UpstreamView
	if err := decode(body, &u); err != nil {
		return err
	}
	switch {
	case u.Tools > 0:
		say(s.notes, `%s is %s and has %s, but none that is approved and that you may call`, id, string(u.State), count(u.Tools, "tool", "tools"))
	case u.Error != nil:
		say(s.notes, "%s is %s and has no tools: %s", id, string(u.State), *u.Error)
	default:
		say(s.notes, "%s is %s and has no tools", id, string(u.State))
	}
	return nil
}

// noteUnknown says which of some tools there are not: a search makes nothing of them.
func (s *session) noteUnknown(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	all, err := s.tools(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if slices.ContainsFunc(all, func(t client.ToolView) bool { return t.ID == name || t.ListedName == name }) {
			continue
		}
		hint := ""
		if like := toolLike(name, all); like != "" {
			hint = "; did you mean " + like + "?"
		}
		say(s.notes, "there is no tool %s, so it does not count%s", name, hint)
	}
	return nil
}
