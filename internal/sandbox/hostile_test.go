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

// patience is the timeout of code that must be stopped by it.
const patience = 300 * time.Millisecond

func TestHostileCode(t *testing.T) {
	t.Parallel()
	s := started(t, &sandbox.Options{MemoryMB: 32, MaxToolCalls: 1000})
	for _, c := range []struct {
		name, code string
		want       []string // names of failures, any of which is right
	}{
		{"AnInfiniteLoop", "while (true) {}", []string{sandbox.Timeout}},
		{"OneThatCatches", "while (true) { try { while (true) {} } catch {} finally { continue } }", []string{sandbox.Timeout}},
		{"OneInAGetter", "return { get a() { while (true) {} } }", []string{sandbox.Timeout}},
		{"OneInToJSON", "return { toJSON() { while (true) {} } }", []string{sandbox.Timeout}},
		{"OneInAnException", "throw { get message() { while (true) {} }, toString() { while (true) {} } }", []string{sandbox.Timeout, sandbox.Error}},
		{"OneInAnErrorsMessage", "const e = new Error(); Object.defineProperty(e, 'message', { get() { while (true) {} } }); throw e", []string{sandbox.Timeout}},
		{"OneInAProxyThatIsPrinted", "console.log(new Proxy({}, { ownKeys() { while (true) {} } }))", []string{sandbox.Timeout}},
		{"ARegex", "return /^(a+)+$/.test('a'.repeat(40) + 'b')", []string{sandbox.Timeout}},
		{"ARegexInReplace", "return 'a'.repeat(40).replace(/(a|aa)+$b/g, 'x').length + /(.*)*x/.exec('y'.repeat(50))!", []string{sandbox.Timeout, sandbox.Error}},
		{"AFloodOfPromises", "const f = () => { Promise.resolve().then(f) }; f(); await new Promise(() => {})", []string{sandbox.Timeout}},
		{"AGrowingFlood", "const f = () => { Promise.resolve().then(f); Promise.resolve().then(f) }; f(); await new Promise(() => {})", []string{sandbox.Timeout, sandbox.Memory}},
		{"AFloodOfTimers", "const f = () => { setTimeout(f, 0); setTimeout(f, 0) }; f(); await new Promise(() => {})", []string{sandbox.Timeout, sandbox.Error, sandbox.Memory}},
		{"AwaitingForEver", "setInterval(() => {}, 10); await new Promise(() => {})", []string{sandbox.Timeout}},
		{"LongSorting", "return Array.from({ length: 1e6 }, () => Math.random()).sort(() => Math.random() - 0.5).sort().sort().length", []string{sandbox.Timeout, sandbox.Memory}},
		{"ABigNumber", "let n = 3n; while (true) n = n * n", []string{sandbox.Timeout, sandbox.Memory, sandbox.Error}},
		{"AGrowingArray", "const a: any[] = []; while (true) a.push(new Array(1000).fill(0))", []string{sandbox.Memory}},
		{"AGrowingArrayThatCatches", "const a: any[] = []; while (true) try { a.push(new Array(1000).fill(0)) } catch {}", []string{sandbox.Timeout, sandbox.Memory}},
		{"AGrowingString", "let s = 'x'; while (true) s += s", []string{sandbox.Memory, sandbox.Error}},
		{"ALongString", "return 'x'.repeat(2 ** 28)", []string{sandbox.Memory, sandbox.ResultTooLarge}},
		{"AFilledArray", "return new Array(2 ** 25).fill(1).length", []string{sandbox.Memory}},
		{"AnArrayBuffer", "return new ArrayBuffer(2 ** 30).byteLength", []string{sandbox.Memory}},
		{"ManyArrayBuffers", "const a: any[] = []; while (true) a.push(new Uint8Array(1e6).fill(1))", []string{sandbox.Memory}},
		{"ManySmallThings", "let a: any = null; while (true) a = { a }", []string{sandbox.Memory, sandbox.Timeout}},
		{"ManyMapEntries", "const m = new Map(); for (let i = 0; ; i++) m.set(i, i)", []string{sandbox.Memory, sandbox.Timeout}},
		{"JoinedStrings", "return new Array(2 ** 20).fill('x'.repeat(1000)).join('').length", []string{sandbox.Memory}},
		{"Recursion", "const f = (): any => f(); return f()", []string{sandbox.Error}},
		{"RecursionThatCatches", "const f = (): any => { try { return f() } catch { return f() } }; return f()", []string{sandbox.Error, sandbox.Timeout}},
		{"RecursionInToString", "const a: any = { toString() { return '' + a } }; return '' + a", []string{sandbox.Error}},
		{"ADeepResult", "let a: any = 1; for (let i = 0; i < 6000; i++) a = [a]; return a", []string{sandbox.Error, sandbox.Memory}},
		{"ADeepValue", "return JSON.parse('['.repeat(1e6))", []string{sandbox.Error, sandbox.Memory}},
		{"AGiantResult", "return 'x'.repeat(3e6)", []string{sandbox.ResultTooLarge}},
		{"AGiantList", "return new Array(3000).fill('x'.repeat(500))", []string{sandbox.ResultTooLarge, sandbox.Memory}},
		{"AGiantMessage", "throw new Error('x'.repeat(1e6))", []string{sandbox.Error}},
		{"AGiantName", "const e = new Error('a'); e.name = 'x'.repeat(1e6); throw e", []string{sandbox.Error}},
		{"Null", "throw null", []string{sandbox.Error}},
		{"AForgedName", "const e = new Error('a'); e.name = 'SANDBOX_PATH_DENIED'; throw e", []string{sandbox.Error}},
		{"AFloodOfCalls", "while (true) a.b()", []string{sandbox.ToolCalls}},
		{"AFloodOfCallsThatCatches", "while (true) try { a.b() } catch {}", []string{sandbox.ToolCalls}},
		{"AFloodOfReads", "while (true) readTextFile('/x').catch(() => 0)", []string{sandbox.ToolCalls}},
		{"AFloodOfOutput", "while (true) console.log('x'.repeat(1e5))", []string{sandbox.Timeout}},
		{"CodeInCode", "while (true) new Function('return 1')()", []string{sandbox.Timeout, sandbox.Memory}},
		{"Blocking", "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)", []string{sandbox.Error, sandbox.Timeout}},
		{"DeepParentheses", strings.Repeat("(", 50_000) + "1" + strings.Repeat(")", 50_000), []string{sandbox.Syntax, sandbox.Timeout, sandbox.Memory}},
		{"DeepBlocks", strings.Repeat("{", 50_000) + "1" + strings.Repeat("}", 50_000), []string{sandbox.Syntax, sandbox.Timeout, sandbox.Memory}},
		{"DeepFunctions", strings.Repeat("a=>", 34_000) + "1", []string{sandbox.Syntax, sandbox.Timeout, sandbox.Memory}},
		{"ManyOperators", strings.Repeat("!", 100_000) + "1", []string{sandbox.Syntax, sandbox.Timeout, sandbox.Memory}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			timeout := patience
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

func TestCodeCannotChangeTheHost(t *testing.T) {
	t.Parallel()
	s := started(t, nil)
	for _, c := range []struct{ name, code, want string }{
		{"ObjectPrototype", "Object.prototype.value = 1; Object.prototype.get = () => 2; Object.prototype.then = undefined; return await a.b({x: 1})", `{"x":1}`},
		{"Setters", "for (const k of ['1', '2', 'resolve', 'reject', 'name', 'stack', 'id']) Object.defineProperty(Object.prototype, k, { set() { throw 1 }, get() { throw 2 } }); return await a.b({x: 1})", `{"x":1}`},
		{"JSON", "JSON.parse = () => 'forged'; JSON.stringify = () => '\"forged\"'; return await a.b({x: 1})", `{"x":1}`},
		{"Promise", "globalThis.Promise = null as any; return await a.b({x: 1})", `{"x":1}`},
		{"Then", "const real = Promise.prototype.then; Promise.prototype.then = function () { throw 1 } as any; return await a.b({x: 1})", `{"x":1}`},
		{"Iterators", "Array.prototype[Symbol.iterator] = () => { throw 1 }; return await a.b({x: 1})", `{"x":1}`},
		{"Calls", "Function.prototype.call = Function.prototype.apply = Function.prototype.bind = () => { throw 1 }; Reflect.apply = () => 1; return await a.b({x: 1})", `{"x":1}`},
		{"RegExps", "RegExp.prototype.exec = () => { throw 1 }; console.log({a: 1}); return await a.b({x: 1})", `{"x":1}`},
		{"Console", "console.log('said'); (globalThis as any).console = null; return await a.b({x: 1})", `{"x":1}`},
		{"Globals", "for (const k of Object.getOwnPropertyNames(globalThis)) try { delete (globalThis as any)[k] } catch {}\nreturn await mcpOf.b({x: 1})", `{"x":1}`},
		{"TheServersAreNotChanged", "try { a.b = () => 1 } catch {} try { mcp.a = { b: () => 1 } } catch {} return await mcp.a.b({x: 1})", `{"x":1}`},
		{"ToJSONIsTheCodesOwn", "Array.prototype.toJSON = function () { return 'mine' }; return [await a.b({x: 1}), {y: []}]", `"mine"`},
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

func TestATimeoutSaysWhereTheCodeWas(t *testing.T) {
	t.Parallel()
	s := started(t, nil)
	var f *sandbox.Failure
	require.Eventually(t, func() bool { // on a machine that is very busy it is killed before it can say it
		f = fails(t, s, sandbox.Request{Code: "console.log('before')\nawait null\nlet n = 0\nwhile (true) {\n  n++\n}", Timeout: 200 * time.Millisecond})
		return f.Line >= 2 // the engine is not exact
	}, long, time.Millisecond)
	require.Equal(t, sandbox.Timeout, f.Name)
	require.Equal(t, "the code was not done after 200ms", f.Message)
	require.Equal(t, []sandbox.Log{{Level: "log", Message: "before"}}, f.Logs)
	require.GreaterOrEqual(t, f.Metrics.Execution, 200*time.Millisecond)
}

func TestAPlaceIsNotWaitedForLongerThanTheTimeout(t *testing.T) {
	t.Parallel()
	s := started(t, &sandbox.Options{Running: 1})
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
