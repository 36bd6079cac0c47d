package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
)

// runFlags are what a run of code can be told.
type runFlags struct {
	intent, context string
	timeout         time.Duration
	memory          int
	readPaths       []string
}

// newRunCommand runs code in the server's sandbox.
func newRunCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Run TypeScript over tools, in the server's sandbox",
		Long: `Run TypeScript or JavaScript in the server's sandbox, over the tools that you may call;
FILE is - for standard input. Tools are functions: await filesystem.readTextFile({path}).
What the code returns goes to standard output, text as it is and everything else as JSON;
what it logs goes to standard error. Code that fails is exit code 1.`,
		Example: `  comet run report.ts --context data.json
  echo '6 * 7' | comet run -`,
	}
	flags := addClientFlags(cmd)
	fs := cmd.Flags()
	fs.StringVar(&f.intent, "intent", "", "what it is for, in your own `words`; the tools that fit can be called though the code does not name their server")
	fs.StringVar(&f.context, "context", "", "JSON `file` with an object, whose members the code has as variables; - is standard input")
	fs.DurationVar(&f.timeout, "timeout", 0, "how long it may take (default 30s)")
	fs.IntVar(&f.memory, "memory", 0, "how much memory it may have, in `MB` (default 512)")
	fs.StringArrayVar(&f.readPaths, "read-path", nil, "a `path` on the server's machine that it may read, within what the server allows; may be repeated")
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

// arguments are those of agentcards:execute_code.
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

// codeLog is a line that code logged.
type codeLog struct {
	Message string `json:"message"`
}

// showRun prints what code logged and returned.
func (s *session) showRun(result toolAnswer) error {
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
		if err := s.print(s.notes, l.Message); err != nil {
			return err
		}
	}
	return nil
}

// codeFailed prints what code logged before it failed, and says where that was.
func (s *session) codeFailed(err error) error {
	var failed *failedCall
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
