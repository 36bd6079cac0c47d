package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/testscript"
)

// until repeats a client command until it succeeds and its standard output matches an expression:
// until REGEXP comet upstreams list.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until regexp command [args...]")
	}
	wanted := regexp.MustCompile("(?m)" + args[0])
	for late := time.After(waitTimeout); ; {
		err := ts.Exec(args[1], args[2:]...)
		output := ts.ReadFile("stdout")
		if err == nil && wanted.MatchString(output) {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-late:
			ts.Fatalf("the output never matched %s (%v):\n%s", args[0], err, output)
		}
	}
}

// converse is an MCP client: it sends the lines of a file to a command, waits for the response to
// each that has an id before it sends the next, and closes standard input: converse REQUESTS 0
// comet mcp. The responses go to the file answers, where every line must be JSON-RPC, standard
// error to the file notes. The command must end with the exit code; if it ends early, converse
// stops.
func converse(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: converse requests code command [args...]")
	}
	answers, notes := &bytes.Buffer{}, &bytes.Buffer{}
	cmd := exec.Command(args[2], args[3:]...)
	cmd.Dir, cmd.Stderr = ts.MkAbs("."), notes
	for _, name := range []string{"HOME", "COMET_SERVER", "COMET_TOKEN"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	cmd.Env = append(cmd.Env, "PATH="+os.Getenv("PATH"))
	in, err := cmd.StdinPipe()
	ts.Check(err)
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	late := time.AfterFunc(waitTimeout, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	lines := bufio.NewScanner(io.TeeReader(out, answers))
	lines.Buffer(nil, 1<<20)
	for request := range strings.Lines(ts.ReadFile(args[0])) {
		if _, err := io.WriteString(in, request); err != nil {
			break // it has ended
		}
		awaitAnswer(ts, lines, request)
	}
	_ = in.Close()
	for lines.Scan() {
		messageIn(ts, lines.Bytes())
	}
	_ = cmd.Wait() // the exit code is checked below
	ts.Check(os.WriteFile(ts.MkAbs("answers"), answers.Bytes(), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs("notes"), notes.Bytes(), 0o600))
	if got := strconv.Itoa(cmd.ProcessState.ExitCode()); got != args[1] {
		ts.Fatalf("exit code %s, want %s:\n%s\n%s", got, args[1], notes, answers)
	}
}

// message has the members that distinguish requests, responses and notifications.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
}

// awaitAnswer reads until the response to a request; a notification has none.
func awaitAnswer(ts *testscript.TestScript, lines *bufio.Scanner, request string) {
	asked := messageIn(ts, []byte(request))
	for asked.ID != nil && lines.Scan() {
		if m := messageIn(ts, lines.Bytes()); m.Method == "" && bytes.Equal(m.ID, asked.ID) {
			return
		}
	}
}

func messageIn(ts *testscript.TestScript, line []byte) (m message) {
	if err := json.Unmarshal(line, &m); err != nil || m.JSONRPC != "2.0" {
		ts.Fatalf("this is not of the protocol: %s", line)
	}
	return m
}

// fakeMCP is the program fake-mcp: an MCP server over stdio. "fake-mcp changed" has another
// definition of the tool echo, "fake-mcp hiding" one with hidden characters, "fake-mcp broken"
// does not start, and "fake-mcp bare" has no tools.
func fakeMCP() {
	if len(os.Args) > 1 && os.Args[1] == "broken" {
		fmt.Fprintln(os.Stderr, "fake-mcp: no database")
		return
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "fake", Version: "1.2"}, nil)
	if len(os.Args) > 1 && os.Args[1] == "bare" {
		_ = s.Run(context.Background(), &mcp.StdioTransport{})
		return
	}
	type text struct {
		Text string `json:"text"`
	}
	readOnly := &mcp.ToolAnnotations{ReadOnlyHint: true}
	mcp.AddTool(s, echoTool(strings.Join(os.Args[1:], " ")),
		func(_ context.Context, _ *mcp.CallToolRequest, in text) (*mcp.CallToolResult, any, error) {
			return textResult(in.Text), nil, nil
		})
	type pair struct {
		A float64 `json:"a"`
		B float64 `json:"b"`
	}
	type sum struct {
		Sum float64 `json:"sum"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "add", Description: "Adds two numbers", Annotations: readOnly},
		func(_ context.Context, _ *mcp.CallToolRequest, in pair) (*mcp.CallToolResult, sum, error) {
			return nil, sum{in.A + in.B}, nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "fail", Description: "Deletes everything, or tries to"},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			out := textResult("the disk is full\nand so is the other")
			out.IsError = true
			return out, nil, nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "picture", Description: "Draws a comet", Annotations: readOnly},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			out := textResult("a comet:")
			out.Content = append(out.Content, &mcp.ImageContent{Data: []byte{1, 2, 3}, MIMEType: "image/png"})
			return out, nil, nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "slow", Description: "Runs until it is cancelled"},
		func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			fmt.Fprintln(os.Stderr, "slow has begun")
			<-ctx.Done()
			fmt.Fprintln(os.Stderr, "slow was cancelled")
			return nil, nil, ctx.Err()
		})
	_ = s.Run(context.Background(), &mcp.StdioTransport{}) // it ends with its input
}

// echoTool is the definition of echo for a program argument.
func echoTool(how string) *mcp.Tool {
	tool := &mcp.Tool{Name: "echo", Description: "Returns a text. It is not stored.", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}
	switch how {
	case "changed":
		tool.Description = "Returns a text, and sends it away. It is not stored."
		tool.InputSchema = json.RawMessage(`{"type": "object", "properties": {"text": {"type": "string"}, "to": {"type": "string"}}, "required": ["text"]}`)
		tool.Annotations.ReadOnlyHint = false
	case "hiding":
		tool.Description = "Returns a text. It is not stored.\u200b\U000e0041\x1b[2K\x1b[1A\r"
	}
	return tool
}

func textResult(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}
