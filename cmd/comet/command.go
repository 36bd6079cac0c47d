package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

// command is a row of the table of commands: it sends one request to the API, made of its
// arguments and flags, and prints the response. TestCommandTable compares every row with the
// API description.
type command struct {
	// use is the command line after "comet": the words of the command, then its arguments, such
	// as "webhooks delivery ID DELIVERY". Arguments without a parameter fill the placeholders of
	// the request's path in order.
	use                  string
	aliases              []string
	short, long, example string

	request  string // method and path, such as "GET /api/v1/agents/{agent_id}"
	params   []param
	required []string       // flags that must be given; "--until|--for" is one of the two
	fixed    map[string]any // parameters or members that every request has

	// The response is printed as one of these, or as several in this order.
	message string                           // a template; on standard error if the row has secret or no response
	secret  string                           // the member that is printed alone on standard output
	fields  []column                         // the members of one object
	pages   string                           // the member with the entries of a list that has pages
	rows    string                           // the member with the entries of a list in one response
	columns []column                         // of the list
	empty   string                           // a note about an empty list
	after   func(c *call, body []byte) error // prints more below it
	show    func(s *session, body []byte) error

	// run replaces sending the request and printing the response.
	run func(ctx context.Context, c *call) error
}

// commandGroup holds commands that begin with the same words.
type commandGroup struct {
	name    string
	aliases []string
	short   string
	more    []func(*clientFlags) *cobra.Command // its commands that are not in the table
}

// call is one run of a command of the table.
type call struct {
	*session
	command
	cmd  *cobra.Command
	args []string
}

// addTable adds the groups and the commands of the table to root.
func addTable(root *cobra.Command, groups []commandGroup, table []command) {
	parents, flags := map[string]*cobra.Command{"": root}, map[string]*clientFlags{}
	for _, g := range groups {
		above, name := cutLast(g.name)
		cmd := &cobra.Command{Use: name, Aliases: g.aliases, Short: g.short}
		if flags[g.name] = flags[above]; above == "" {
			cmd.GroupID = groupClient
			flags[g.name] = addClientFlags(cmd)
		}
		for _, add := range g.more {
			cmd.AddCommand(add(flags[g.name]))
		}
		parents[above].AddCommand(cmd)
		parents[g.name] = cmd
	}
	for _, row := range table {
		words, arguments := splitUse(row.use)
		above, name := cutLast(words)
		cmd := &cobra.Command{
			Use: strings.TrimSpace(name + " " + arguments), Aliases: row.aliases, Short: row.short, Long: row.long, Example: row.example,
		}
		f := flags[above]
		if above == "" {
			cmd.GroupID = groupClient
			f = addClientFlags(cmd)
		}
		for _, p := range row.params {
			p.register(cmd)
		}
		run := row.run
		if run == nil {
			run = sendAndShow
		}
		parents[above].AddCommand(clientCommand(f, cmd, func(ctx context.Context, s *session, args []string) error {
			return run(ctx, &call{session: s, command: row, cmd: cmd, args: args})
		}))
	}
}

// sendAndShow is what a command does that has no run function of its own.
func sendAndShow(ctx context.Context, c *call) error {
	if c.pages != "" {
		return c.list(ctx)
	}
	body, err := c.send(ctx, c.request)
	if err != nil {
		return err
	}
	return c.printResponse(body)
}

// send sends a request with the parameters that were given and returns the body of the response.
func (c *call) send(ctx context.Context, request string) ([]byte, error) {
	req, err := c.newRequest(ctx, request)
	if err != nil {
		return nil, err
	}
	return c.do(req)
}

func (c *call) do(req *http.Request) ([]byte, error) {
	body, err := c.readResponse(c.api.Client.Do(req))
	if err != nil {
		return nil, c.nameParams(err)
	}
	var warned struct {
		Warnings *[]client.FieldError `json:"warnings"`
	}
	if len(body) > 0 && body[0] == '{' && json.Unmarshal(body, &warned) == nil && req.Method != http.MethodGet {
		c.warn(warned.Warnings)
	}
	return body, nil
}

// newRequest makes a request of the arguments and flags.
func (c *call) newRequest(ctx context.Context, request string) (*http.Request, error) {
	values, err := c.values()
	if err != nil {
		return nil, err
	}
	method, path, _ := strings.Cut(request, " ")
	path, err = c.fillPath(path, values)
	if err != nil {
		return nil, err
	}
	query, header := url.Values{}, http.Header{}
	body, isDocument := values[""].([]byte)
	delete(values, "")
	members := map[string]any{}
	for to, v := range values {
		switch {
		case isHeader(to):
			header.Set(to, fmt.Sprint(v))
		case method != http.MethodGet:
			setMember(members, strings.Split(to, "."), v)
		default:
			for _, text := range texts(v) {
				query.Add(to, text)
			}
		}
	}
	switch {
	case isDocument && len(members) > 0:
		return nil, usagef("--file replaces the arguments and flags that describe the request; give one or the other")
	case method == http.MethodPatch && len(members) == 0 && !isDocument:
		return nil, usagef("there is nothing to change; see --help for the flags")
	case !isDocument && method != http.MethodGet && c.hasBody():
		if body, err = json.Marshal(members); err != nil {
			return nil, err
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.httpRequest(ctx, method, path, header, body)
}

// httpRequest makes a request to the server; body may be nil.
func (s *session) httpRequest(ctx context.Context, method, path string, header http.Header, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(s.server, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, edit := range s.api.RequestEditors {
		if err := edit(ctx, req); err != nil {
			return nil, err
		}
	}
	return req, nil
}

// hasBody reports whether the request has a body, even if it has no members.
func (c *call) hasBody() bool {
	return slices.ContainsFunc(c.params, func(p param) bool { return !p.kind.local && !isHeader(p.to) }) || len(c.fixed) > 0
}

// isHeader reports whether a parameter is sent in a header, such as Idempotency-Key.
func isHeader(to string) bool { return to != "" && to[0] >= 'A' && to[0] <= 'Z' }

var placeholder = regexp.MustCompile(`\{(\w+)\}`)

// fillPath puts arguments into a path, and takes those that have a parameter out of values.
func (c *call) fillPath(path string, values map[string]any) (string, error) {
	var err error
	unnamed := c.unnamedArguments()
	path = placeholder.ReplaceAllStringFunc(path, func(match string) string {
		name, value := strings.Trim(match, "{}"), ""
		argument := name
		if v, ok := values[name]; ok {
			value = fmt.Sprint(v)
			delete(values, name)
		} else if len(unnamed) > 0 {
			argument, value = unnamed[0].name, unnamed[0].value
			unnamed = unnamed[1:]
		}
		if value == "" && err == nil {
			err = usagef("%s must not be empty", argument)
		}
		return url.PathEscape(value)
	})
	return path, err
}

// argument is a positional argument that was given.
type argument struct{ name, value string }

// unnamedArguments are the arguments that no parameter of the row describes.
func (c *call) unnamedArguments() (out []argument) {
	for i, name := range argumentNames(c.use) {
		described := slices.ContainsFunc(c.params, func(p param) bool { return p.argument() == name })
		if !described && i < len(c.args) {
			out = append(out, argument{name, c.args[i]})
		}
	}
	return out
}

// setMember sets a member of an object, and makes the objects above it.
func setMember(object map[string]any, path []string, value any) {
	for _, name := range path[:len(path)-1] {
		inner, ok := object[name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			object[name] = inner
		}
		object = inner
	}
	object[path[len(path)-1]] = value
}

func texts(v any) []string {
	if list, ok := v.([]string); ok {
		return list
	}
	return []string{fmt.Sprint(v)}
}

// values are the parameters that were given, by the names that the API has for them. The
// document that --file names is there as "".
func (c *call) values() (map[string]any, error) {
	out, given := map[string]any{}, map[string]string{}
	maps.Copy(out, c.fixed)
	for _, p := range c.params {
		if p.kind.local {
			continue
		}
		v, ok, err := c.valueOf(p)
		if err != nil {
			return nil, usagef("%s: %w", p.display(), err)
		}
		if !ok {
			continue
		}
		if other, twice := given[p.to]; twice {
			return nil, usagef("give %s or %s, not both", other, p.display())
		}
		out[p.to], given[p.to] = v, p.display()
	}
	for _, names := range c.required {
		all := strings.Split(names, "|")
		if !slices.ContainsFunc(all, func(name string) bool { return c.cmd.Flags().Changed(name[2:]) }) {
			return nil, usagef("missing %s", strings.Join(all, " or "))
		}
	}
	return out, nil
}

// nameParams replaces the names that the API has for parameters by those of the command.
func (c *call) nameParams(err error) error {
	var refused *apiError
	if !errors.As(err, &refused) {
		return err
	}
	for _, p := range c.params {
		if p.to == "" && c.cmd.Flags().Changed("file") {
			return err // the names are those of the file
		}
	}
	detail := refused.problem.Detail
	for _, p := range c.params {
		if p.to == "" || isHeader(p.to) {
			continue
		}
		if detail != nil {
			detail = new(p.rename(*detail))
		}
		if fields := refused.problem.Errors; fields != nil {
			for i := range *fields {
				p.renameField(&(*fields)[i])
			}
		}
	}
	refused.problem.Detail = detail
	return err
}

// list prints a list that has pages.
func (c *call) list(ctx context.Context) error {
	limit, err := c.limit()
	if err != nil {
		return err
	}
	entries, err := c.fetchPages(limit, c.pages, func(size int, cursor *string) (*http.Response, error) {
		req, err := c.newRequest(ctx, c.request)
		if err != nil {
			return nil, err
		}
		query := req.URL.Query()
		query.Set("limit", fmt.Sprint(size))
		if cursor != nil {
			query.Set("cursor", *cursor)
		}
		req.URL.RawQuery = query.Encode()
		return c.api.Client.Do(req)
	})
	if err != nil {
		return c.nameParams(err)
	}
	body, err := listBody(c.pages, entries)
	if err != nil {
		return err
	}
	return c.printResponse(body)
}

// limit is the value of --limit, 0 for all entries.
func (c *call) limit() (int, error) {
	f := c.cmd.Flags().Lookup("limit")
	if f == nil || f.Value.String() == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(f.Value.String())
	if err != nil || n < 0 {
		return 0, usagef("--limit must be 0 (no limit) or more, not %q", f.Value.String())
	}
	return n, nil
}

// printResponse prints the body of a response in the format of -o.
func (c *call) printResponse(body []byte) error {
	if len(body) == 0 {
		return c.printMessage(c.messages, map[string]any{})
	}
	return c.out.show(body, func() error {
		if c.show != nil {
			return c.show(c.session, body)
		}
		if err := c.printView(body); err != nil || c.after == nil {
			return err
		}
		return c.after(c, body)
	})
}
