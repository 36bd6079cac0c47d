package sandbox_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/sandbox"
)

// shortTimeout is the timeout of code that never finishes.
const shortTimeout = 300 * time.Millisecond

func TestHostileCode(t *testing.T) {
	t.Parallel()
	s := started(t, &sandbox.Options{MemoryMB: 32, MaxRuns: 100})
	for _, c := range []struct {
		name, code string
		want       []string // names of failures, of which any is correct
	}{
		{"an infinite loop", "while (true) {}", []string{sandbox.Timeout}},
		{"an infinite loop that catches", "while (true) { try { while (true) {} } catch {} finally { continue } }", []string{sandbox.Timeout}},
		{"an infinite getter", "return { get a() { while (true) {} } }", []string{sandbox.Timeout}},
		{"an infinite toJSON", "return { toJSON() { while (true) {} } }", []string{sandbox.Timeout}},
		{"an infinite exception", "throw { get message() { while (true) {} }, toString() { while (true) {} } }", []string{sandbox.Timeout, sandbox.Error}},
		{"an infinite error message", "const e = new Error(); Object.defineProperty(e, 'message', { get() { while (true) {} } }); throw e", []string{sandbox.Timeout}},
		{"an infinite proxy in the log", "console.log(new Proxy({}, { ownKeys() { while (true) {} } }))", []string{sandbox.Timeout}},
		{"a slow regular expression", "return /^(a+)+$/.test('a'.repeat(40) + 'b')", []string{sandbox.Timeout}},
		{"a slow replacement", "return 'a'.repeat(40).replace(/(a|aa)+$b/g, 'x').length + /(.*)*x/.exec('y'.repeat(50))!", []string{sandbox.Timeout, sandbox.Error}},
		{"a flood of promises", "const f = () => { Promise.resolve().then(f) }; f(); await new Promise(() => {})", []string{sandbox.Timeout}},
		{"a growing flood of promises", "const f = () => { Promise.resolve().then(f); Promise.resolve().then(f) }; f(); await new Promise(() => {})", []string{sandbox.Timeout, sandbox.Memory}},
		{"a flood of timers", "const f = () => { setTimeout(f, 0); setTimeout(f, 0) }; f(); await new Promise(() => {})", []string{sandbox.Timeout, sandbox.Error, sandbox.Memory}},
		{"waiting forever", "setInterval(() => {}, 10); await new Promise(() => {})", []string{sandbox.Timeout}},
		{"long sorting", "return Array.from({ length: 1e6 }, () => Math.random()).sort(() => Math.random() - 0.5).sort().sort().length", []string{sandbox.Timeout, sandbox.Memory}},
		{"a big number", "let n = 3n; while (true) n = n * n", []string{sandbox.Timeout, sandbox.Memory, sandbox.Error}},
		{"a growing array", "const a: any[] = []; while (true) a.push(new Array(1000).fill(0))", []string{sandbox.Memory}},
		{"a growing array that catches", "const a: any[] = []; while (true) try { a.push(new Array(1000).fill(0)) } catch {}", []string{sandbox.Timeout, sandbox.Memory}},
		{"a growing string", "let s = 'x'; while (true) s += s", []string{sandbox.Memory, sandbox.Error}},
		{"a long string", "return 'x'.repeat(2 ** 28)", []string{sandbox.Memory, sandbox.ResultTooLarge}},
		{"a filled array", "return new Array(2 ** 25).fill(1).length", []string{sandbox.Memory}},
		{"an array buffer", "return new ArrayBuffer(2 ** 30).byteLength", []string{sandbox.Memory}},
		{"many array buffers", "const a: any[] = []; while (true) a.push(new Uint8Array(1e6).fill(1))", []string{sandbox.Memory}},
		{"many small things", "let a: any = null; while (true) a = { a }", []string{sandbox.Memory, sandbox.Timeout}},
		{"many map entries", "const m = new Map(); for (let i = 0; ; i++) m.set(i, i)", []string{sandbox.Memory, sandbox.Timeout}},
		{"a long normalisation", "return '\ufdfa'.repeat(1e6).normalize('NFKD').length", []string{sandbox.Memory}},
		{"a long comparison", "'x'.repeat(4e6).localeCompare('y'.repeat(4e6))", []string{sandbox.Memory}},
		{"joined strings", "return new Array(2 ** 20).fill('x'.repeat(1000)).join('').length", []string{sandbox.Memory}},
		{"recursion", "const f = (): any => f(); return f()", []string{sandbox.Error}},
		{"recursion that catches", "const f = (): any => { try { return f() } catch { return f() } }; return f()", []string{sandbox.Error, sandbox.Timeout}},
		{"recursion in toString", "const a: any = { toString() { return '' + a } }; return '' + a", []string{sandbox.Error}},
		{"a deep result", "let a: any = 1; for (let i = 0; i < 6000; i++) a = [a]; return a", []string{sandbox.Error, sandbox.Memory}},
		{"a deep value", "return JSON.parse('['.repeat(1e6))", []string{sandbox.Error, sandbox.Memory}},
		{"a giant result", "return 'x'.repeat(3e6)", []string{sandbox.ResultTooLarge}},
		{"a giant list", "return new Array(3000).fill('x'.repeat(500))", []string{sandbox.ResultTooLarge, sandbox.Memory}},
		{"a giant message", "throw new Error('x'.repeat(1e6))", []string{sandbox.Error}},
		{"a giant name", "const e = new Error('a'); e.name = 'x'.repeat(1e6); throw e", []string{sandbox.Error}},
		{"null", "throw null", []string{sandbox.Error}},
		{"a forged name of a failure", "const e = new Error('a'); e.name = 'SANDBOX_PATH_DENIED'; throw e", []string{sandbox.Error}},
		{"a flood of calls", "while (true) a.b()", []string{sandbox.ToolCalls}},
		{"a flood of calls that catches", "while (true) try { a.b() } catch {}", []string{sandbox.ToolCalls}},
		{"a flood of reads", "while (true) readTextFile('/x').catch(() => 0)", []string{sandbox.ToolCalls}},
		{"a flood of output", "while (true) console.log('x'.repeat(1e5))", []string{sandbox.Timeout}},
		{"code that creates code", "while (true) new Function('return 1')()", []string{sandbox.Timeout, sandbox.Memory}},
		{"blocking", "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)", []string{sandbox.Error, sandbox.Timeout}},
		{"deep parentheses", strings.Repeat("(", 50_000) + "1" + strings.Repeat(")", 50_000), []string{sandbox.Syntax, sandbox.Timeout, sandbox.Memory}},
		{"deep blocks", strings.Repeat("{", 50_000) + "1" + strings.Repeat("}", 50_000), []string{sandbox.Syntax, sandbox.Timeout, sandbox.Memory}},
		{"deep functions", strings.Repeat("a=>", 34_000) + "1", []string{sandbox.Syntax, sandbox.Timeout, sandbox.Memory}},
		{"many operators", strings.Repeat("!", 100_000) + "1", []string{sandbox.Syntax, sandbox.Timeout, sandbox.Memory}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			timeout := shortTimeout
			if !slices.Contains(c.want, sandbox.Timeout) {
				timeout = long
			}
			f := fails(t, s, sandbox.Request{
				Code: c.code, Timeout: timeout, Tools: []sandbox.Tool{{Server: "a", Name: "b"}},
				Call: func(context.Context, string, string, json.RawMessage) (json.RawMessage, error) { return nil, nil },
			})
			require.Contains(t, c.want, f.Name, f)
			require.Less(t, len(f.Message)+len(f.Stack), 20_000)
			require.Equal(t, "4", run(t, s, "2 + 2"))
		})
	}
}

func TestChangedPrototypesDoNotAffectTheHost(t *testing.T) {
	t.Parallel()
	s := started(t, nil)
	for _, c := range []struct{ name, code, want string }{
		{"Object.prototype", "Object.prototype.value = 1; Object.prototype.get = () => 2; Object.prototype.then = undefined; return await a.b({x: 1})", `{"x":1}`},
		{"setters", "for (const k of ['1', '2', 'resolve', 'reject', 'name', 'stack', 'id']) Object.defineProperty(Object.prototype, k, { set() { throw 1 }, get() { throw 2 } }); return await a.b({x: 1})", `{"x":1}`},
		{"JSON", "JSON.parse = () => 'forged'; JSON.stringify = () => '\"forged\"'; return await a.b({x: 1})", `{"x":1}`},
		{"promises", "globalThis.Promise = null as any; return await a.b({x: 1})", `{"x":1}`},
		{"then", "const real = Promise.prototype.then; Promise.prototype.then = function () { throw 1 } as any; return await a.b({x: 1})", `{"x":1}`},
		{"iterators", "Array.prototype[Symbol.iterator] = () => { throw 1 }; return await a.b({x: 1})", `{"x":1}`},
		{"calls", "Function.prototype.call = Function.prototype.apply = Function.prototype.bind = () => { throw 1 }; Reflect.apply = () => 1; return await a.b({x: 1})", `{"x":1}`},
		{"regular expressions", "RegExp.prototype.exec = () => { throw 1 }; console.log({a: 1}); return await a.b({x: 1})", `{"x":1}`},
		{"console", "console.log('text'); (globalThis as any).console = null; return await a.b({x: 1})", `{"x":1}`},
		{"globals", "for (const k of Object.getOwnPropertyNames(globalThis)) try { delete (globalThis as any)[k] } catch {}\nreturn await mcpOf.b({x: 1})", `{"x":1}`},
		{"servers", "try { a.b = () => 1 } catch {} try { mcp.a = { b: () => 1 } } catch {} return await mcp.a.b({x: 1})", `{"x":1}`},
		{"toJSON affects only the code's own values", "Array.prototype.toJSON = function () { return 'mine' }; return [await a.b({x: 1}), {y: []}]", `"mine"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			code := "const mcpOf = a;\n" + c.code
			got, err := s.Run(t.Context(), sandbox.Request{
				Code: code, Tools: []sandbox.Tool{{Server: "a", Name: "b"}},
				Call: func(_ context.Context, _, _ string, args json.RawMessage) (json.RawMessage, error) { return args, nil },
			})
			require.NoError(t, err)
			require.Equal(t, c.want, string(got.Value))
			require.Equal(t, 1, got.Metrics.ToolCalls)
		})
	}
	require.Equal(t, `"undefined"`, run(t, s, "typeof (globalThis as any).x"), "runs share nothing")
}

func TestTimeoutPosition(t *testing.T) {
	t.Parallel()
	s := started(t, nil)
	var f *sandbox.Failure
	require.Eventually(t, func() bool { // on a busy machine the child is killed before it reports the position
		f = fails(t, s, sandbox.Request{Code: "console.log('before')\nawait null\nlet n = 0\nwhile (true) {\n  n++\n}", Timeout: 200 * time.Millisecond})
		return f.Line >= 2 // the engine's position is approximate
	}, long, 5*time.Millisecond)
	require.Equal(t, sandbox.Timeout, f.Name)
	require.Equal(t, "the code did not finish within 200ms", f.Message)
	require.Equal(t, []sandbox.Log{{Level: "log", Message: "before"}}, f.Logs)
	require.GreaterOrEqual(t, f.Metrics.Execution, 200*time.Millisecond)
}

func TestWaitForASlotEndsWithTheTimeout(t *testing.T) {
	t.Parallel()
	s := started(t, &sandbox.Options{MaxRuns: 1})
	entered, done := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := s.Run(ctx, sandbox.Request{
			Code: "await a.b()", Tools: []sandbox.Tool{{Server: "a", Name: "b"}},
			Call: func(ctx context.Context, _, _ string, _ json.RawMessage) (json.RawMessage, error) {
				close(entered)
				<-ctx.Done()
				return nil, ctx.Err()
			},
		})
		done <- err
	}()
	<-entered
	f := fails(t, s, sandbox.Request{Code: "1", Timeout: 10 * time.Millisecond})
	require.Equal(t, sandbox.Busy, f.Name)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Equal(t, "1", run(t, s, "1"))
}
