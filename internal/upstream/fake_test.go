//go:build unix

package upstream_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// fakeMode is the variable that makes the test binary an upstream of the kind that it names.
const fakeMode = "FAKE_UPSTREAM"

func TestMain(m *testing.M) {
	switch mode := os.Getenv(fakeMode); mode {
	case "":
		// The SDK's server never ends the sessions of a server that was replaced.
		goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/modelcontextprotocol/go-sdk/mcp.(*streamableServerConn).Read"))
	case "holder":
		hold()
	case "sdk":
		serveSDK()
	default:
		(&fake{mode: mode, waiting: map[string]func(json.RawMessage){}}).serve()
	}
}

// fake is an upstream of version 2025-11-25 that can send anything.
type fake struct {
	mode    string
	mu      sync.Mutex
	waiting map[string]func(json.RawMessage)
	held    []string // ids of calls that wait for "go"
	asked   int
}

type rpc struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string         `json:"name"`
		Arguments map[string]any `json:"arguments"`
		Cursor    string         `json:"cursor"`
		RequestID json.RawMessage
		Meta      struct {
			Token any `json:"progressToken"`
		} `json:"_meta"`
	} `json:"params"`
	Result json.RawMessage `json:"result"`
}

func (f *fake) say(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fmt.Printf(format+"\n", args...)
}

func (f *fake) result(id json.RawMessage, result string) {
	f.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

func (f *fake) text(id json.RawMessage, text string) {
	quoted, _ := json.Marshal(text)
	f.result(id, fmt.Sprintf(`{"content":[{"type":"text","text":%s}]}`, quoted))
}

func (f *fake) serve() {
	switch f.mode {
	case "exits":
		fmt.Fprintln(os.Stderr, "cannot open", os.Getenv("API_KEY"))
		os.Exit(3) //nolint:forbidigo // it is another program
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	case "floods":
		for i := range 200_000 {
			fmt.Fprintln(os.Stderr, "line", i)
		}
	}
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			if f.mode == "stubborn" || f.mode == "silent" {
				<-time.After(time.Hour)
			}
			return
		}
		var r rpc
		if json.Unmarshal(line, &r) == nil {
			f.handle(r)
		}
	}
}

func (f *fake) handle(r rpc) {
	switch r.Method {
	case "":
		f.mu.Lock()
		then := f.waiting[string(r.ID)]
		f.mu.Unlock()
		if then != nil {
			then(r.Result)
		}
	case "initialize":
		if f.mode == "silent" {
			return
		}
		f.result(r.ID, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"fake","version":"1"}}`)
	case "tools/list":
		f.list(r)
	case "tools/call":
		f.call(r)
	case "ping":
		f.result(r.ID, "{}")
	case "notifications/cancelled":
		fmt.Fprintln(os.Stderr, "cancelled", string(r.Params.RequestID))
	case "notifications/initialized":
	default:
		f.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`, r.ID)
	}
}

func tool(name string) string {
	return fmt.Sprintf(`{"name":%q,"description":"d","inputSchema":{"type":"object"}}`, name)
}

func (f *fake) list(r rpc) {
	var tools []string
	next := ""
	switch f.mode {
	case "many":
		page, _ := strconv.Atoi(r.Params.Cursor)
		for i := range 500 {
			tools = append(tools, tool(fmt.Sprintf("t%05d", page*500+i)))
		}
		next = fmt.Sprintf(`,"nextCursor":"%d"`, page+1) // without an end
	case "odd":
		tools = []string{
			tool("b"), tool("a"), `{"name":"b","description":"another","inputSchema":{"type":"object"}}`, "null", tool(""), tool(strings.Repeat("x", 129)),
			`{"name":"s1","inputSchema":{"type":"object","properties":{"q":{"type":"strnig"}}}}`,
			`{"name":"s2","inputSchema":{"type":"object","properties":[]}}`, `{"name":"s3","inputSchema":"no"}`, `{"name":"s4"}`,
			`{"name":"s5","inputSchema":{"type":"array"}}`,
			`{"name":"c","inputSchema":{"type":"object","properties":{"q":{"type":["string","null"],"pattern":"(?=x)"}},"$schema":"http://json-schema.org/draft-07/schema#"}}`,
		}
	default:
		for _, name := range []string{"echo", "never", "twice", "die", "big", "env", "ask", "cycle", "slow", "go", "held", "storm", "grandchild", "garbage", "crash", "refuse", "hang"} {
			tools = append(tools, tool(name))
		}
	}
	f.result(r.ID, `{"tools":[`+strings.Join(tools, ",")+`]`+next+`}`)
}

func (f *fake) call(r rpc) {
	switch r.Params.Name {
	case "echo":
		text, _ := json.Marshal(r.Params.Arguments)
		f.text(r.ID, string(text))
	case "never":
	case "hang":
		<-time.After(time.Hour)
	case "held":
		fmt.Fprintln(os.Stderr, "held", string(r.ID))
	case "twice":
		f.text(r.ID, "first")
		f.text(r.ID, "second")
	case "die":
		os.Exit(3) //nolint:forbidigo // it is another program
	case "big":
		f.text(r.ID, strings.Repeat("x", 11<<20))
	case "env":
		f.text(r.ID, strings.Join(os.Environ(), "\n"))
	case "ask":
		f.ask(r, `{"type":"boolean"}`)
	case "cycle":
		f.ask(r, `{"type":"boolean","allOf":[{"$ref":"#/properties/ok"}]}`)
	case "slow":
		for i := range 3 {
			token, _ := json.Marshal(r.Params.Meta.Token)
			f.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":3,"message":"m"}}`, token, i+1)
		}
		f.held = append(f.held, string(r.ID))
		fmt.Fprintln(os.Stderr, "slow")
	case "go":
		for _, id := range f.held {
			f.text(json.RawMessage(id), "done")
		}
		f.held = nil
		f.text(r.ID, "gone")
	case "storm":
		for range 1000 {
			f.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		}
		f.text(r.ID, "stormed")
	case "grandchild":
		f.text(r.ID, strconv.Itoa(grandchild()))
	case "garbage":
		f.say("starting up\n\n[not json\n42\n\"text\"\n{\"jsonrpc\":\"1.0\"}\n" + strings.Repeat("y", 11<<20))
		f.text(r.ID, "after")
	case "crash":
		f.say(`{"jsonrpc":"2.0","id":901,"method":"elicitation/create"}`)
		f.say(`{"jsonrpc":"2.0","method":"notifications/elicitation/complete"}`)
		f.say(`{"jsonrpc":"2.0","method":"notifications/resources/updated"}`)
		f.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":[1],"progress":1}}`)
		f.say(`{"jsonrpc":"2.0","id":902,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}`)
		f.result(r.ID, `{"content":[],"resultType":"input_required","inputRequests":{"a":null}}`)
	case "refuse":
		f.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32004,"message":"no","data":{"why":"so","key":%q}}}`, r.ID, os.Getenv("API_KEY"))
	}
}

// ask sends a question with a property of the schema and returns the reply as the result of the call.
func (f *fake) ask(r rpc, schema string) {
	f.mu.Lock()
	f.asked++
	id := 77 + f.asked
	f.waiting[strconv.Itoa(id)] = func(result json.RawMessage) { go f.text(r.ID, string(result)) }
	f.mu.Unlock()
	text, _ := json.Marshal(fmt.Sprint("sure", r.Params.Arguments["who"], "?"))
	f.say(`{"jsonrpc":"2.0","id":%d,"method":"elicitation/create","params":{"message":%s,"requestedSchema":{"type":"object","properties":{"ok":%s}}}}`, id, text, schema)
	fmt.Fprintln(os.Stderr, "asked", id)
}

// grandchild starts a program that does not end by itself and returns its process id.
func grandchild() int {
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{fakeMode + "=stubborn"}
	in, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return 0
	}
	go func() { _ = cmd.Wait(); _ = in.Close() }()
	return cmd.Process.Pid
}
