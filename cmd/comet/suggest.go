package main

import (
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

	"comet/internal/errs"
	"comet/internal/input"
)

// unknownCommand returns the error for an unknown command, with the nearest known one.
func unknownCommand(cmd *cobra.Command, word string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		names = append(append(names, sub.Name()), sub.Aliases...)
	}
	return fmt.Errorf("unknown command %q for %q%s", word, cmd.CommandPath(), input.DidYouMean(word, names))
}

// formatIn returns the output format in a command line that cannot be parsed, "" for none.
func formatIn(args []string) string {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	format := flags.StringP("output", "o", "", "")
	_ = flags.Parse(args) // the error was reported
	return *format
}

// flagError words an error of parsing flags.
func flagError(cmd *cobra.Command, err error) error {
	var (
		missing   *pflag.NotExistError
		valueless *pflag.ValueRequiredError
	)
	switch words := cmd.Flags().Args(); {
	case cmd.HasSubCommands() && len(words) > 0:
		return unknownCommand(cmd, words[0])
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

// typeList is the path of the list of the agents' types.
const typeList = "/api/v1/agents?limit=1000#type"

// suggest adds the nearest name to an error about a name that does not exist. lists are those of the
// arguments.
func (s *session) suggest(ctx context.Context, err error, lists, arguments []string) error {
	refused, ok := errors.AsType[*apiError](err)
	if !ok || refused.problem.Detail == nil || strings.Contains(*refused.problem.Detail, "did you mean") {
		return err
	}
	near := ""
	for list, text := range map[string]string{"/api/v1/agents?limit=1000": `no (?:agent|worker) "([^"]+)"`, typeList: `agent of the type "([^"]+)"`} {
		if name := regexp.MustCompile(text).FindStringSubmatch(*refused.problem.Detail); name != nil {
			near += s.nearest(ctx, name[1], list)
		}
	}
	var missing struct{ Requested, Supported []string }
	if json.Unmarshal(refused.body, &missing) == nil && near == "" {
		for _, name := range missing.Requested {
			if !slices.Contains(missing.Supported, name) && near == "" {
				near = input.DidYouMean(name, missing.Supported)
			}
		}
	}
	if refused.status == http.StatusNotFound && near == "" {
		near = input.DidYouMean(s.unknownArgument(ctx, lists, arguments))
	}
	*refused.problem.Detail += near
	return err
}

// nearest returns a suggestion of the most similar name in a list, "" if the list contains the name.
func (s *session) nearest(ctx context.Context, name, list string) string {
	names := s.names(ctx, list)
	if slices.Contains(names, name) {
		return ""
	}
	return input.DidYouMean(name, names)
}

// unknownArgument returns the first argument that is not in the list of its ids, and the ids; "" for none.
func (s *session) unknownArgument(ctx context.Context, lists, arguments []string) (unknown string, names []string) {
	for i, id := range arguments {
		if names := s.names(ctx, listOf(lists, arguments[:i])); names != nil && !slices.Contains(names, id) {
			return id, names
		}
	}
	return "", nil
}

// fullID returns the UUID in a list that begins with text, or text if there is none. If there are
// several, the error lists ten of them.
func (s *session) fullID(ctx context.Context, list, text string) (string, error) {
	if list == "" || len(text) < 6 || len(text) >= 36 || strings.Trim(text, "0123456789abcdef-") != "" {
		return text, nil
	}
	if strings.HasPrefix(list, "/api/v1/tasks?") {
		list = "/api/v1/tasks?limit=10&id_prefix=" + text
	}
	ids := slices.DeleteFunc(s.names(ctx, list), func(id string) bool { return !strings.HasPrefix(id, text) || id != text && uuid.Validate(id) != nil })
	switch {
	case len(ids) == 0 || slices.Contains(ids, text):
		return text, nil
	case len(ids) == 1:
		return ids[0], nil
	}
	return "", errs.New(errs.InvalidRequest, "%q is the beginning of several ids: %s", text, strings.Join(ids[:min(len(ids), 10)], ", "))
}

// listOf returns the path of the list of ids for the argument after those in before, "" for none.
func listOf(lists, before []string) string {
	if len(before) >= len(lists) {
		return ""
	}
	path := lists[len(before)]
	for _, id := range before {
		path = strings.Replace(path, "{}", url.PathEscape(id), 1)
	}
	return path
}
