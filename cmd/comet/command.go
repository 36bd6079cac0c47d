package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"comet/internal/config"
	"comet/openapi/client"
)

// command is a row of the command table. Most commands send one request to the API, built from
// their arguments and flags, and print the response. TestCommandTable compares every row with the
// API description.
type command struct {
	// use is the command line after "comet": the words of the command, then its arguments, such
	// as "webhooks delivery ID DELIVERY". Arguments without a parameter fill the placeholders of
	// the request's path in order. If the arguments begin with [flags], flags must precede them.
	use                  string
	aliases              []string
	ids                  []string // paths of the lists of the arguments' values; {} is an earlier argument
	short, long, example string

	group    string // "server" or "other"; "" for commands that talk to a server
	settings string // its flags of the server's configuration: "all" or their names

	request  string // method and path, such as "GET /api/v1/agents/{agent_id}"
	params   []param
	required []string       // flags that must be given; "--until|--for" is one of the two, "--agent,--type|--file" one or both of the first, or the third
	fixed    map[string]any // parameters or members that every request has

	// The response is printed as one of these, or as several in this order.
	message string   // a template; printed on standard error if the row has a secret or no response
	secret  string   // the member that is printed alone on standard output
	fields  []column // the members of one object
	pages   string   // the member with the entries of a list that has pages
	rows    string   // the member with the entries of a list in one response
	columns []column // of the list
	empty   string   // a template, printed on standard error instead of an empty list
	table   string   // a template of lines with cells between tabs; the first line has the headers
	after   string   // a template
	// failed is a template for the error of a response that reports a failure, empty for none.
	failed string

	// run replaces sending the request and printing the response.
	run func(ctx context.Context, c *call) error
}

// commandGroup holds commands that begin with the same words.
type commandGroup struct {
	name, short, long, group string
	aliases                  []string
}

// call is one run of a command of the table.
type call struct {
	*session
	command
	cmd  *cobra.Command
	args []string
	// sent has the values of the request by their API names; "*" is the whole body. local has the
	// values of flags that are not sent, by their names.
	sent, local map[string]any
	// file is the name of the sent document, used in errors; "" for none.
	file string
	// config is the configuration of the server, for a row with settings: flags, environment and file.
	config config.Config
}

func addTable(root *cobra.Command, groups []commandGroup, table []command) {
	parents := map[string]*cobra.Command{"": root}
	for _, g := range groups {
		above, name := cutLast(g.name)
		cmd := &cobra.Command{Use: name, Aliases: g.aliases, Short: g.short, Long: g.long}
		if above == "" {
			cmd.GroupID = cmp.Or(g.group, groupClient)
		}
		if cmd.GroupID == groupClient {
			addClientFlags(cmd)
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
		if above == "" && row.group != groupOther {
			cmd.GroupID = cmp.Or(row.group, groupClient)
		}
		if above == "" && row.group != groupOther && row.settings == "" {
			addClientFlags(cmd)
		}
		addSettings(cmd, row.settings)
		cmd.Flags().SetInterspersed(!strings.HasPrefix(arguments, "[flags]"))
		for _, p := range row.params {
			p.register(cmd)
		}
		cmd.RunE = func(cmd *cobra.Command, args []string) error { return runRow(cmd, row, args) }
		cmd.ValidArgsFunction = row.completeArgument
		parents[above].AddCommand(cmd)
	}
}

func runRow(cmd *cobra.Command, row command, args []string) error {
	s, err := newSession(cmd)
	if err != nil {
		return err
	}
	c := &call{session: s, command: row, cmd: cmd, args: args}
	if err := c.parse(cmd.Context()); err != nil {
		return err
	}
	if c.settings != "" {
		if c.config, err = config.Load(config.Sources{Flags: cmd.Flags(), Environ: os.Environ()}); err != nil {
			return err
		}
	}
	if c.run != nil {
		return c.run(cmd.Context(), c)
	}
	return sendAndShow(cmd.Context(), c)
}

// parse reads the values of the arguments and flags.
func (c *call) parse(ctx context.Context) (err error) {
	for i, id := range c.args {
		if c.args[i], err = c.fullID(ctx, listOf(c.ids, c.args[:i]), id); err != nil {
			return err
		}
	}
	c.sent, c.local = map[string]any{}, map[string]any{}
	maps.Copy(c.sent, c.fixed)
	given := map[string]string{}
	for _, p := range c.params {
		v, ok, err := c.valueOf(p)
		if id, isText := v.(string); isText && err == nil {
			v, err = c.fullID(ctx, p.kind.ids, id)
		}
		switch name := p.display(); {
		case errors.As(err, new(*fs.PathError)):
			return usageError{err} // it names the file
		case err != nil:
			return usagef("%s: %w", name, err)
		case !ok:
		case p.to == "":
			c.local[strings.TrimPrefix(name, "--")] = v
		case given[p.to] != "":
			return usagef("give %s or %s, not both", given[p.to], name)
		default:
			c.sent[p.to], given[p.to] = v, name
		}
	}
	return c.checkRequired()
}

// given returns the value of a flag that is not sent, the zero value if it was not given and has no
// default.
func given[T any](c *call, flag string) T {
	v, _ := c.local[flag].(T)
	return v
}

// sendAndShow is what a command does that has no run function of its own.
func sendAndShow(ctx context.Context, c *call) error {
	if c.pages != "" {
		return c.list(ctx)
	}
	return c.printResult(c.send(ctx))
}

// send sends the request and returns the body of the response.
func (c *call) send(ctx context.Context) ([]byte, error) {
	req, err := c.newRequest(ctx)
	if err != nil {
		return nil, err
	}
	body, err := c.readResponse(c.http.Do(req))
	if err != nil {
		return nil, c.suggest(ctx, c.nameParams(err), c.ids, c.args)
	}
	var warned struct{ Warnings []client.FieldError }
	if req.Method != http.MethodGet && bytes.HasPrefix(body, []byte("{")) && json.Unmarshal(body, &warned) == nil {
		c.warn(warned.Warnings, c.file)
	}
	return body, nil
}

func (c *call) newRequest(ctx context.Context) (*http.Request, error) {
	values := maps.Clone(c.sent)
	method, path, _ := strings.Cut(c.request, " ")
	path, err := c.fillPath(path, values)
	if err != nil {
		return nil, err
	}
	query, header := url.Values{}, http.Header{}
	body, isDocument := values["*"].([]byte)
	delete(values, "*")
	members := map[string]any{}
	for to, v := range values {
		name, inQuery := strings.CutPrefix(to, "?")
		switch {
		case isHeader(to):
			header.Set(to, fmt.Sprint(v))
		case !inQuery && method != http.MethodGet:
			setMember(members, strings.Split(to, "."), v)
		default:
			for _, text := range texts(v) {
				query.Add(name, text)
			}
		}
	}
	hasBody := len(c.fixed) > 0 || slices.ContainsFunc(c.params, func(p param) bool { return p.to != "" && !isHeader(p.to) })
	switch {
	case isDocument && len(members) > 0:
		return nil, usagef("--file replaces the arguments and flags that describe the request; give one or the other")
	case method == http.MethodPatch && len(members) == 0 && !isDocument:
		return nil, usagef("there is nothing to change; see --help for the flags")
	case !isDocument && method != http.MethodGet && (len(members) > 0 || hasBody):
		if body, err = json.Marshal(members); err != nil {
			return nil, err
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.httpRequest(ctx, method, path, header, body)
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

// nameParams replaces the API's parameter names by those of the command, and adds the name of the
// file that was sent.
func (c *call) nameParams(err error) error {
	refused, ok := errors.AsType[*apiError](err)
	if !ok {
		return err
	}
	refused.file = c.file
	if _, ok := c.sent["*"]; ok {
		return err // the names are those of the file
	}
	notGiven := func(p param) bool { return !c.changed(p.flag()) }
	for _, p := range append(slices.DeleteFunc(slices.Clone(c.params), notGiven), c.params...) { // given ones first: several may set the same member
		if p.to == "" || p.to == "*" || isHeader(p.to) {
			continue
		}
		if detail := refused.problem.Detail; detail != nil {
			refused.problem.Detail = new(p.rename(*detail))
		}
		if fields := refused.problem.Errors; fields != nil {
			for i := range *fields {
				p.renameField(&(*fields)[i])
			}
		}
	}
	if fields, detail := refused.problem.Errors, refused.problem.Detail; fields != nil && len(*fields) > 0 && detail != nil {
		if name := (*fields)[0].Parameter; name != nil && *detail == (*fields)[0].Detail && strings.HasPrefix(*name, "--") && !strings.Contains(*detail, *name) {
			*detail = *name + ": " + *detail
		}
	}
	return err
}

// list prints a list that has pages: it follows the list's cursors up to --limit entries.
func (c *call) list(ctx context.Context) error {
	const most = 1000
	limit := given[int64](c, "limit")
	if limit < 0 {
		return usagef("--limit must be 0 (no limit) or more, not \"%d\"", limit)
	}
	all := []json.RawMessage{}
	for {
		c.sent["limit"] = int64(most)
		if limit > 0 {
			c.sent["limit"] = min(most, limit-int64(len(all)))
		}
		body, err := c.send(ctx)
		if err != nil {
			return err
		}
		var page map[string]json.RawMessage
		var entries []json.RawMessage
		if err := decode(body, &page); err != nil {
			return err
		}
		if err := decode(page[c.pages], &entries); err != nil {
			return err
		}
		all = append(all, entries...)
		if page["next_cursor"] == nil || limit > 0 && int64(len(all)) >= limit {
			break
		}
		var cursor string
		if err := decode(page["next_cursor"], &cursor); err != nil {
			return err
		}
		c.sent["cursor"] = cursor
	}
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(map[string]any{c.pages: all}); err != nil {
		return err
	}
	return c.printResponse(body.Bytes())
}

// printResponse prints the body of a response in the format of -o. Its error is the failure that
// the response reports.
func (c *call) printResponse(body []byte) error {
	data, err := c.viewData(body)
	if err != nil {
		return err
	}
	if len(body) == 0 {
		return printText(c.messages, c.message, data)
	}
	if err := c.out.show(body, func() error { return c.printView(data) }); err != nil {
		return err
	}
	return failure(c.failed, data)
}
