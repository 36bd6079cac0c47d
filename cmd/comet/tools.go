package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/background"
	"comet/internal/telemetry"
)

// longestCall is the server's limit for the duration of a tool call.
const longestCall = time.Hour

// authorizationTime is the server's limit for the authorization of an upstream.
const authorizationTime = 10 * time.Minute

// callTool calls a tool and prints its result unchanged.
func callTool(ctx context.Context, c *call) (err error) {
	if c.sent["arguments"], err = c.arguments(given[string](c, "args"), c.args[1:]); err != nil {
		return err
	}
	body, result, err := c.sendCall(ctx)
	if err != nil {
		return err
	}
	to := c.out.w
	if result.IsError {
		to = c.messages
		err = fmt.Errorf("%s reports a failure", printable(c.args[0]))
	}
	shown := error(nil)
	if result.IsError || c.out.format == formatTable {
		shown = c.printContent(to, result.Content)
	}
	if c.out.format != formatTable {
		shown = errors.Join(shown, c.out.show(body, nil))
	}
	return errors.Join(shown, err)
}

// arguments combines those of a file, of standard input and of the command line.
func (s *session) arguments(file string, args []string) (json.RawMessage, error) {
	whole := len(args) == 1 && (args[0] == "-" || strings.HasPrefix(strings.TrimSpace(args[0]), "{"))
	switch {
	case !whole:
		return s.parameters(file, args)
	case file != "":
		return nil, usagef("the arguments are given twice: in --args, and as an object")
	case args[0] == "-":
		return s.parameters("-", nil)
	}
	object, err := readObject("the argument", []byte(args[0]))
	if err != nil {
		return nil, err
	}
	return object.JSON(), nil
}

// toolResult is the result of a tool call.
type toolResult struct {
	Content    []content       `json:"content"`
	Structured json.RawMessage `json:"structured_content"`
	IsError    bool            `json:"is_error"`
}

// content is a part of a result (MCP, “Tool Result”).
type content struct {
	Type     string   `json:"type"`
	Text     string   `json:"text"`
	MimeType string   `json:"mimeType"`
	URI      string   `json:"uri"`
	Resource *content `json:"resource"`
}

// sendCall calls a tool. A call that the server rejects is an *apiError whose title is the error
// name that MCP clients see, if there is one; a call that was made and failed is a *toolFailure.
func (c *call) sendCall(ctx context.Context) (body []byte, result toolResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, longestCall+requestTimeout)
	defer cancel()
	c.http = &http.Client{}
	if body, err = c.send(ctx); err != nil {
		return nil, toolResult{}, withToolError(err)
	}
	return body, result, decode(body, &result)
}

// toolFailure is a call that was made and failed.
type toolFailure struct {
	text string
	body []byte // the problem document
}

func (e *toolFailure) Error() string { return e.text }

// withToolError adds the name that MCP clients see to the error of a call.
func withToolError(err error) error {
	if api, ok := errors.AsType[*apiError](err); ok {
		var more struct {
			Name string `json:"tool_error"`
		}
		if json.Unmarshal(api.body, &more) == nil && more.Name != "" {
			api.problem.Title = more.Name
			if api.status == http.StatusUnprocessableEntity && more.Name != "SANDBOX_CONFIG" { // SANDBOX_CONFIG is an invalid request
				return &toolFailure{text: api.Error(), body: api.body}
			}
		}
	}
	return err
}

// printContent prints the texts of a result, and notes about other content on standard error.
func (s *session) printContent(w io.Writer, parts []content) error {
	for _, c := range parts {
		switch {
		case c.Type == "text":
			if err := s.print(w, c.Text); err != nil {
				return err
			}
		case c.Resource != nil && c.Resource.Text != "":
			if err := s.print(w, c.Resource.Text); err != nil {
				return err
			}
		case c.Resource != nil:
			printLine(s.messages, "(%s %s; -o json has it)", c.Resource.URI, c.Resource.MimeType)
		default:
			printLine(s.messages, "(%s %s%s; -o json has it)", c.Type, c.MimeType, c.URI)
		}
	}
	return nil
}

// print prints text, escaped for a terminal, and ends its last line.
func (s *session) print(w io.Writer, text string) error {
	if w == s.messages || telemetry.IsTerminal(w) {
		return copyPrintable(w, strings.NewReader(text))
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}

// runCode runs code in the sandbox of the server.
func runCode(ctx context.Context, c *call) error {
	_, result, err := c.sendCall(ctx)
	if err != nil {
		return c.codeFailed(err)
	}
	return c.showRun(result)
}

// codeLog is a line of the code's log.
type codeLog struct {
	Message string `json:"message"`
}

// showRun prints the log and the return value of code.
func (s *session) showRun(result toolResult) error {
	var run struct {
		Result jsontext.Value `json:"result"`
		Logs   []codeLog      `json:"logs"`
	}
	if err := decode(result.Structured, &run); err != nil {
		return err
	}
	if s.out.format != formatTable {
		return s.out.show(result.Structured, nil)
	}
	if err := s.printLogs(run.Logs); err != nil {
		return err
	}
	if run.Result.Kind() == '"' {
		var text string
		if err := decode(run.Result, &text); err != nil {
			return err
		}
		return s.print(s.out.w, text)
	}
	if err := run.Result.Indent(jsontext.WithIndent("  ")); err != nil {
		return err
	}
	return s.print(s.out.w, string(run.Result))
}

func (s *session) printLogs(logs []codeLog) error {
	for _, l := range logs {
		if err := s.print(s.messages, l.Message); err != nil {
			return err
		}
	}
	return nil
}

// codeFailed prints the log of code that failed, and adds the location to its error.
func (s *session) codeFailed(err error) error {
	failed, ok := errors.AsType[*toolFailure](err)
	if !ok {
		return err
	}
	var more struct {
		Details struct {
			Logs   []codeLog `json:"logs"`
			Line   int       `json:"line"`
			Column int       `json:"column"`
		} `json:"tool_details"`
	}
	if err := decode(failed.body, &more); err != nil {
		return err
	}
	if err := s.printLogs(more.Details.Logs); err != nil {
		return err
	}
	if more.Details.Line > 0 {
		failed.text += fmt.Sprintf(" (line %d, column %d)", more.Details.Line, more.Details.Column)
	}
	return failed
}

// changeTool sends a request about the tool SERVER:TOOL.
func changeTool(ctx context.Context, c *call) error {
	server, tool, ok := strings.Cut(c.args[0], ":")
	if !ok || server == "" || tool == "" {
		return usagef("a tool must be named SERVER:TOOL, not %q", c.args[0])
	}
	c.sent["upstream_id"], c.sent["tool"] = server, tool
	return sendAndShow(ctx, c)
}

// changePolicy shows the policy of a token, sets it from flags or a file, or removes it.
func changePolicy(ctx context.Context, c *call) (err error) {
	_, path, _ := strings.Cut(c.request, " ")
	rules := c.changed("allow") || c.changed("deny") || c.changed("class")
	switch set, cleared := c.changed("set"), c.changed("clear"); {
	case set && cleared || rules && (set || cleared):
		return usagef("give --set, --clear, or --allow, --deny and --class, not both")
	case cleared:
		c.request, c.message = "DELETE "+path, `cleared the policy of {{index . "TOKEN-ID"}}`
	case set:
		c.request = "PUT " + path
		c.sent["*"], err = c.readInput(given[string](c, "set"))
	case rules:
		c.request = "PUT " + path
		for _, name := range []string{"allow", "deny"} {
			list := []map[string]string{}
			for _, pattern := range given[[]string](c, name) {
				list = append(list, map[string]string{"tool": pattern})
			}
			c.sent[name] = list
		}
		c.sent["classes"] = append([]string{}, given[[]string](c, "class")...)
	}
	if err != nil {
		return err
	}
	return sendAndShow(ctx, c)
}

// shellWord quotes a word for a shell: an MCP server chooses the names of its tools, and a
// person copies the line.
func shellWord(word string) string {
	if regexp.MustCompile(`^[A-Za-z0-9_.:/-]+$`).MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func addUpstream(ctx context.Context, c *call) error {
	command := c.args[1:]
	if c.cmd.ArgsLenAtDash() != 1 && len(command) > 0 {
		return usagef("give one ID, and the command after --: comet upstreams add %s -- %s", c.args[0], strings.Join(command, " "))
	}
	switch {
	case len(command) > 0 && (c.changed("command") || c.changed("arg")):
		return usagef("the command is given twice: by --command or --arg, and after --")
	case len(command)+len(c.sent) == 0:
		return usagef("give a command after --, or --url, or --file")
	}
	if len(command) > 0 {
		c.sent["command"] = command[0]
	}
	if len(command) > 1 {
		c.sent["args"] = command[1:]
	}
	return sendAndShow(ctx, c)
}

// authorizeUpstream prints where to authorize comet, and waits until the upstream is connected.
func authorizeUpstream(ctx context.Context, c *call) error {
	if err := sendAndShow(ctx, c); err != nil {
		return err
	}
	var begin, now struct{ State, Since string }
	for started := time.Now(); begin.Since == "" || now.State != "ready" || now == begin; {
		if begin.Since == "" {
			begin = now
		}
		if time.Since(started) > authorizationTime {
			return fmt.Errorf("%s was not authorized in time; start again", c.args[0])
		}
		if _, err := c.do(ctx, http.MethodGet, "/api/v1/upstreams/"+url.PathEscape(c.args[0]), nil, &now); err != nil {
			return err
		}
		if err := background.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	printLine(c.messages, "%s is ready", c.args[0])
	return nil
}
