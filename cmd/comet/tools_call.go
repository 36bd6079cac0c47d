package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"comet/internal/telemetry"
)

// longestCall is the server's limit for the duration of a tool call.
const longestCall = time.Hour

func newToolsCallCommand(flags *clientFlags) *cobra.Command {
	var (
		file    string
		timeout time.Duration
	)
	cmd := &cobra.Command{
		Use:   "call NAME [JSON | - | NAME=TEXT | NAME:=JSON]...",
		Short: "Call a tool, by any of its names",
		Long: `Call a tool, by any of its names. Its arguments are one JSON object, on the command line, in a
file or on standard input (-), or NAME=TEXT and NAME:=JSON, which are added to those of --args.
The result goes to standard output unchanged. If the tool fails, its error text goes to
standard error and the exit code is 1.`,
		Example: `  comet tools call filesystem:read_text_file path=/srv/data/notes.txt head:=10
  comet tools call memory:search_nodes '{"query": "comets"}' -o json`,
	}
	cmd.Flags().StringVar(&file, "args", "", "JSON `file` with the arguments; - is standard input")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "time limit of the call, at most 1h (default: that of its MCP server)")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		arguments, err := s.arguments(file, args[1:])
		if err != nil {
			return err
		}
		request := map[string]any{"tool": args[0], "arguments": arguments}
		if cmd.Flags().Changed("timeout") {
			if timeout < time.Millisecond || timeout > longestCall {
				return usagef("--timeout must be from 1ms to 1h, not %s", timeout)
			}
			request["timeout_ms"] = timeout.Milliseconds()
		}
		body, result, err := s.callTool(ctx, request)
		if err != nil {
			return err
		}
		to := s.out.w
		if result.IsError {
			to = s.messages
			err = fmt.Errorf("%s reports a failure", printable(args[0]))
		}
		shown := error(nil)
		if result.IsError || s.out.format == formatTable {
			shown = s.printContent(to, result.Content)
		}
		if s.out.format != formatTable {
			shown = errors.Join(shown, s.out.show(body, nil))
		}
		return errors.Join(shown, err)
	})
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

// callTool calls a tool. A call that the server rejects is an *apiError whose title is the error
// name that MCP clients see, if there is one; a call that was made and failed is a *failedCall.
func (s *session) callTool(ctx context.Context, request map[string]any) (body []byte, result toolResult, err error) {
	data, err := json.Marshal(request)
	if err != nil {
		return nil, toolResult{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, longestCall+requestTimeout)
	defer cancel()
	body, err = s.readResponse(s.streaming().CallToolWithBody(ctx, nil, "application/json", bytes.NewReader(data)))
	if err != nil {
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

// withToolError gives the error of a call the name that MCP clients see.
func withToolError(err error) error {
	var api *apiError
	if errors.As(err, &api) {
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

// runFlags are the flags of "comet run".
type runFlags struct {
	intent, context string
	timeout         time.Duration
	memory          int
	readPaths       []string
}

// newRunCommand is "comet run".
func newRunCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Run TypeScript that calls tools, in the server's sandbox",
		Long: `Run TypeScript or JavaScript in the server's sandbox; FILE - reads standard input. The code
can call your tools as functions: await filesystem.readTextFile({path}). The return value goes
to standard output, text unchanged and everything else as JSON; the log goes to standard
error. If the code fails, the exit code is 1.`,
		Example: `  comet run report.ts --context data.json
  echo '6 * 7' | comet run -`,
	}
	flags := addClientFlags(cmd)
	fs := cmd.Flags()
	fs.StringVar(&f.intent, "intent", "", "the purpose of the code, in your own `words`; matching tools can be called without the name of their server")
	fs.StringVar(&f.context, "context", "", "JSON `file` with an object, whose members are variables of the code; - is standard input")
	fs.DurationVar(&f.timeout, "timeout", 0, "time limit of the code (default 30s)")
	fs.IntVar(&f.memory, "memory", 0, "memory limit of the code in `MB` (default 512)")
	fs.StringArrayVar(&f.readPaths, "read-path", nil, "a `path` on the server's machine that the code may read, if the server allows it; repeatable")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		arguments, err := f.arguments(cmd, s, args[0])
		if err != nil {
			return err
		}
		_, result, err := s.callTool(ctx, map[string]any{"tool": "agentcards:execute_code", "arguments": arguments})
		if err != nil {
			return s.codeFailed(err)
		}
		return s.showRun(result)
	})
}

// arguments are the arguments of agentcards:execute_code.
func (f *runFlags) arguments(cmd *cobra.Command, s *session, file string) (map[string]any, error) {
	if file == "-" && f.context == "-" {
		return nil, usagef("standard input can be the code or the context, not both")
	}
	code, err := readInput(s.in, file)
	if err != nil {
		return nil, err
	}
	out, config := map[string]any{"code": string(code)}, map[string]any{}
	if cmd.Flags().Changed("context") {
		data, err := s.parameters(f.context, nil)
		if err != nil {
			return nil, err
		}
		out["context"] = data
	}
	for flag, v := range map[string]struct {
		into   map[string]any
		member string
		value  any
	}{
		"intent": {out, "intent", f.intent}, "timeout": {config, "timeout", f.timeout.Milliseconds()},
		"memory": {config, "memoryLimit", f.memory}, "read-path": {config, "allowedReadPaths", f.readPaths},
	} {
		if cmd.Flags().Changed(flag) {
			v.into[v.member] = v.value
		}
	}
	if len(config) > 0 {
		out["sandbox_config"] = config
	}
	return out, nil
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

// codeFailed prints the log of code that failed, and adds the place to its error.
func (s *session) codeFailed(err error) error {
	var failed *toolFailure
	if !errors.As(err, &failed) {
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
