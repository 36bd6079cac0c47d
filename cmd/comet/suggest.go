package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

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
	var missing *pflag.NotExistError
	if !errors.As(err, &missing) || missing.GetSpecifiedShortnames() != "" {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	name := "--" + missing.GetSpecifiedName()
	return fmt.Errorf("unknown flag %s%s", name, input.DidYouMean(name, names))
}

// noAgent matches the API's text about an agent that does not exist.
var noAgent = regexp.MustCompile(`no agent "([^"]+)"`)

// suggest adds the nearest name to an error about an agent or a capability that does not exist.
func (s *session) suggest(ctx context.Context, err error) error {
	var refused *apiError
	if !errors.As(err, &refused) || refused.problem.Detail == nil || strings.Contains(*refused.problem.Detail, "did you mean") {
		return err
	}
	near := ""
	if name := noAgent.FindStringSubmatch(*refused.problem.Detail); name != nil {
		near = input.DidYouMean(name[1], s.agentNames(ctx, func(a client.AgentItem) string { return a.ID }))
	}
	var work struct{ Requested, Supported []string }
	if json.Unmarshal(refused.body, &work) == nil && near == "" {
		for _, name := range work.Requested {
			if !slices.Contains(work.Supported, name) && near == "" {
				near = input.DidYouMean(name, work.Supported)
			}
		}
	}
	*refused.problem.Detail += near
	return err
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
