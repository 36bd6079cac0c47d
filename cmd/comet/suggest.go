package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"comet/internal/input"
	"comet/openapi/client"
)

// unknownCommand returns the error for an unknown command, with the nearest known one.
func unknownCommand(cmd *cobra.Command, word string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		names = append(append(names, sub.Name()), sub.Aliases...)
	}
	return fmt.Errorf("unknown command %q for %q%s", word, cmd.CommandPath(), input.DidYouMean(word, names))
}

// flagError words an error of parsing flags.
func flagError(cmd *cobra.Command, err error) error {
	var (
		missing   *pflag.NotExistError
		valueless *pflag.ValueRequiredError
	)
	switch {
	case errors.As(err, &valueless):
		return fmt.Errorf("--%s requires a value", valueless.GetFlag().Name)
	case !errors.As(err, &missing):
		return err
	case missing.GetSpecifiedShortnames() != "":
		return fmt.Errorf("unknown flag -%s", missing.GetSpecifiedName())
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	name := "--" + missing.GetSpecifiedName()
	return fmt.Errorf("unknown flag %s%s", name, input.DidYouMean(name, names))
}

// noAgent matches the API's text about an agent that does not exist.
var noAgent = regexp.MustCompile(`no agent "([^"]+)"`)

// suggest adds the nearest name to an error about a name that does not exist.
func (c *call) suggest(ctx context.Context, err error) error {
	var refused *apiError
	if !errors.As(err, &refused) || refused.problem.Detail == nil || strings.Contains(*refused.problem.Detail, "did you mean") {
		return err
	}
	near := ""
	if name := noAgent.FindStringSubmatch(*refused.problem.Detail); name != nil {
		near = input.DidYouMean(name[1], c.agentNames(ctx, func(a client.AgentItem) string { return a.ID }))
	}
	var work struct{ Requested, Supported []string }
	if json.Unmarshal(refused.body, &work) == nil && near == "" {
		for _, name := range work.Requested {
			if !slices.Contains(work.Supported, name) && near == "" {
				near = input.DidYouMean(name, work.Supported)
			}
		}
	}
	if i, names, _ := c.unknownArgument(ctx, err); i >= 0 && near == "" {
		near = input.DidYouMean(c.args[i], names)
	}
	*refused.problem.Detail += near
	return err
}

// completeID replaces the beginning of a UUID, of at least 6 characters, by the only id that begins so, after the
// error of a request that did not find it. It reports whether the request is worth repeating.
func (c *call) completeID(ctx context.Context, err error) bool {
	i, names, complete := c.unknownArgument(ctx, err)
	if i < 0 || !complete || len(c.args[i]) < 6 {
		return false
	}
	begins := func(name string) bool {
		return len(name) == len(uuid.Nil.String()) && strings.HasPrefix(name, c.args[i])
	}
	found := slices.IndexFunc(names, begins)
	if found < 0 || slices.ContainsFunc(names[found+1:], begins) {
		return false
	}
	c.args[i] = names[found]
	return true
}

// unknownArgument finds the first argument, an id in the path, that a request did not find, and the ids that
// there are; -1 for none.
func (c *call) unknownArgument(ctx context.Context, err error) (i int, names []string, complete bool) {
	if exitCode(err) != exitNotFound {
		return -1, nil, false
	}
	for i := range c.args {
		names, complete := c.names(ctx, c.collection(c.args[:i]))
		if names != nil && !slices.Contains(names, c.args[i]) {
			return i, names, complete
		}
	}
	return -1, nil, false
}

// collection returns the path that lists the values of the argument after those in before, "" for none.
func (c *call) collection(before []string) string {
	names := argumentNames(c.use)
	if len(before) >= len(names) {
		return ""
	}
	for _, p := range c.params {
		if p.argument() == names[len(before)] {
			return collections[p.to]
		}
	}
	_, path, _ := strings.Cut(c.request, " ")
	earlier := *c
	earlier.args = before
	for _, a := range earlier.unnamedArguments() {
		path = strings.Replace(path, placeholder.FindString(path), url.PathEscape(a.value), 1)
	}
	at := placeholder.FindStringIndex(path)
	if at == nil {
		return ""
	}
	return strings.TrimSuffix(path[:at[0]], "/")
}

// names lists the ids of a page of a collection, and reports whether it is complete; nil if the token may not
// list them.
func (s *session) names(ctx context.Context, path string) (names []string, complete bool) {
	var page map[string]any
	if path == "" {
		return nil, true
	}
	for _, query := range []string{"?limit=1000", ""} { // short lists have no pages
		if _, err := s.do(ctx, http.MethodGet, path+query, nil, &page); err == nil {
			break
		}
	}
	for _, member := range page {
		entries, _ := member.([]any)
		for _, e := range entries {
			entry, _ := e.(map[string]any)
			if id, ok := cmp.Or(entry["id"], entry["agent_id"]).(string); ok {
				names = append(names, id)
			}
		}
	}
	return names, page["next_cursor"] == nil
}

// completeArgument completes an argument by its choices or by the ids that there are.
func (row command) completeArgument(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	names := append(argumentNames(row.use), make([]string, len(args))...)
	for _, p := range row.params {
		if p.argument() == names[len(args)] && p.kind.choices != nil {
			return p.kind.choices, cobra.ShellCompDirectiveNoFileComp
		}
	}
	c := &call{command: row}
	if s, err := newSession(cmd); err == nil {
		if ids, _ := s.names(cmd.Context(), c.collection(args)); ids != nil {
			return ids, cobra.ShellCompDirectiveNoFileComp
		}
	}
	if names[len(args)] == "FILE" || strings.Contains(row.use, "COMMAND") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeFlag completes the value of a flag, or the last value of a list.
func (p param) completeFlag(cmd *cobra.Command, _ []string, given string) ([]string, cobra.ShellCompDirective) {
	values := slices.Clone(p.kind.choices)
	name, _ := pflag.UnquoteUsage(cmd.Flags().Lookup(p.flag()))
	if s, err := newSession(cmd); err == nil && values == nil {
		values, _ = s.names(cmd.Context(), collections[name])
	}
	if p.kind.list {
		for i := range values {
			values[i] = given[:strings.LastIndexByte(given, ',')+1] + values[i]
		}
	}
	return values, cobra.ShellCompDirectiveNoFileComp
}

// agentNames returns the ids or types of the agents, sorted; nil if the token may not list them:
// they only complete another error.
func (s *session) agentNames(ctx context.Context, nameOf func(client.AgentItem) string) (names []string) {
	var page struct{ Agents []client.AgentItem }
	if _, err := s.do(ctx, http.MethodGet, "/api/v1/agents?limit=1000&total=false", nil, &page); err != nil {
		return nil
	}
	for _, a := range page.Agents {
		if name := nameOf(a); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// someOf lists names, at most as many as fit a message.
func someOf(names []string) string {
	const most = 20
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
