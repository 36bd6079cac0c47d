package sandbox_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/sandbox"
)

func TestResults(t *testing.T) {
	t.Parallel()
	s := started(t, nil)
	for _, c := range []struct{ name, code, want string }{
		{"an expression is the result", `2 + 2`, `4`},
		{"a semicolon does not matter", "2 + 2;", `4`},
		{"space and comments do not matter", "\n// four; or not\n2 + 2 ; // it is four; really\n/* ; */\n", `4`},
		{"an object is an expression", `{a: 1, "b": [2]}`, `{"a":1,"b":[2]}`},
		{"an object with a semicolon is an expression", `{a: 1};`, `{"a":1}`},
		{"an expression may await", `await Promise.resolve(7)`, `7`},
		{"a string may contain brackets and comments", `"a; // b"`, `"a; // b"`},
		{"a promise is awaited", `Promise.resolve(7)`, `7`},
		{"a function called at once", `(() => { const a = 1; return a + 1 })()`, `2`},
		{"types are ignored", `({a: 1} as {a: number}).a satisfies number`, `1`},
		{"statements return", `const a: number = 1; return a + 1`, `2`},
		{"statements without return are null", `const a = 1; a + 1`, `null`},
		{"no code is null", ``, `null`},
		{"a comment is null", `// nothing`, `null`},
		{"undefined is null", `undefined`, `null`},
		{"top-level await", "const a = await Promise.resolve(1)\nconst b = await a\nreturn a + b", `2`},
		{"declared types", "interface A { n: number }\nenum E { X = 3 }\ntype B = A | E\nfunction f<T extends A>(x: T): number { return x.n + E.X }\nreturn f({ n: 1 })", `4`},
		{"Classes", "class A { constructor(private n: number) {} #m = 2; get sum() { return this.n + this.#m } }\nreturn new A(1).sum", `3`},
		{"the result is JSON", `[new Date(0), NaN, undefined, new Map(), {u: undefined}]`, `["1970-01-01T00:00:00.000Z",null,null,{},{}]`},
		{"text", `"é\u2028<\u0000\ud83d\ude00"`, "\"é\u2028<\\u0000😀\""},
		{"times are in UTC", `new Date(2020, 0, 1).getTime()`, `1577836800000`},
		{"Timers", "const a: number[] = []\nawait new Promise<void>(done => { setTimeout(done, 3); setTimeout(() => a.push(2), 2); setTimeout(() => a.push(1), 1); clearTimeout(setTimeout(() => a.push(9))) })\nreturn a", `[1,2]`},
		{"Intervals", "let n = 0\nawait new Promise<void>(done => { const i = setInterval(() => { if (++n === 3) { clearInterval(i); done() } }, 1) })\nreturn n", `3`},
		{"Clones", `structuredClone({a: [1]})`, `{"a":[1]}`},
		{"timers and microtasks", "let a = ''\nqueueMicrotask(() => { a += 'b' })\na += 'a'\nawait null\nawait null\nreturn a", `"ab"`},
		{"iterators and generators", "function* g() { yield 1; yield 2 }\nreturn [...g()]", `[1,2]`},
		{"async iteration", "async function* g() { yield 1; yield 2 }\nlet n = 0\nfor await (const i of g()) n += i\nreturn n", `3`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, run(t, s, c.code))
		})
	}
}

func TestContext(t *testing.T) {
	t.Parallel()
	s := started(t, nil)
	with := func(t *testing.T, context, code string) string {
		got, err := s.Run(t.Context(), sandbox.Request{Code: code, Context: json.RawMessage(context)})
		require.NoError(t, err)
		return string(got.Value)
	}
	for _, c := range []struct{ name, context, code, want string }{
		{"the context is an object", `{"data": [{"active": true, "n": 1}, {"active": false}]}`, "const items = context.data;\nconst filtered = items.filter(x => x.active);\nreturn { total: filtered.length, summary: filtered.slice(0, 5) };", `{"total":1,"summary":[{"active":true,"n":1}]}`},
		{"its keys are globals", `{"data": [1, 2]}`, `data.length`, `2`},
		{"declarations of the code take precedence", `{"data": 1}`, "const data = context.data + 1\nreturn data", `2`},
		{"keys hide no global", `{"JSON": 1, "console": 2, "context": 3, "mcp": 4, "undefined": 5}`, `[typeof JSON, typeof console, typeof context, typeof mcp, typeof undefined]`, `["object","object","object","object","undefined"]`},
		{"other keys are in the context", `{"a-b": 1, "__proto__": {"x": 2}, "1": 3}`, `[context["a-b"], context["__proto__"].x, context[1], typeof x]`, `[1,2,3,"undefined"]`},
		{"no context is an empty object", ``, `context`, `{}`},
		{"the context is not code", `{"a": "\"); throw 1; (\""}`, `context.a`, `"\"); throw 1; (\""`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, with(t, c.context, c.code))
		})
	}
}

func TestEnvironmentIsRestricted(t *testing.T) {
	t.Parallel()
	s := started(t, nil)
	for _, name := range []string{"fetch", "require", "process", "Worker", "XMLHttpRequest", "WebSocket", "std", "os", "__call", "__done", "host"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fails(t, s, sandbox.Request{Code: "const a = 1\nreturn " + name + "('x')"})
			require.Equal(t, sandbox.Error, f.Name)
			require.Contains(t, f.Message, "ReferenceError")
			require.Contains(t, f.Message, name)
			require.Equal(t, 2, f.Line)
		})
	}
	require.Equal(t, `"no"`, run(t, s, `import("os").then(() => "yes", () => "no")`))
	require.Equal(t, `"undefined"`, run(t, s, `typeof (Deno as any).env`))
}

func TestFailurePositions(t *testing.T) {
	t.Parallel()
	s := started(t, nil)
	for _, c := range []struct {
		name, code, failure, message string
		line, column                 int
	}{
		{"an exception", "type A = {\n  n: number\n}\nconst a: A = { n: 1 }\n\nthrow new TypeError('no ' + a.n)", sandbox.Error, "TypeError: no 1", 6, 11},
		{"in a function", "interface X {}\nfunction f(x: X): never {\n  throw new Error('deep')\n}\nreturn f({})", sandbox.Error, "Error: deep", 3, 13},
		{"after an await", "await null\nconst b = 1\nnull.x", sandbox.Error, "TypeError", 3, 0},
		{"a thrown value", "const a = 1\nthrow { reason: 'none' }", sandbox.Error, `the code threw { reason: "none" }`, 0, 0},
		{"in a timer", "setTimeout(() => {\n  throw new Error('late')\n})\nawait new Promise(() => {})", sandbox.Error, "Error: late", 2, 13},
		{"invalid TypeScript", "const a = 1\nconst b = = 2", sandbox.Syntax, "Unexpected", 2, 11},
		{"a bracket is missing", "if (true) {\n  return 1\n", sandbox.Syntax, "at the end of the code", 3, 1},
		{"an extra bracket", "return 1 }", sandbox.Syntax, "", 0, 0},
		{"a bracket that closes the function", "}, async () => {", sandbox.Syntax, "a bracket closes", 0, 0},
		{"a bracket that closes the array", "}]; [() => {", sandbox.Syntax, "", 0, 0},
		{"an invalid expression", "1) + (2", sandbox.Syntax, "", 1, 2},
		{"an import", "import fs from 'fs'\nreturn fs", sandbox.Syntax, "", 1, 8},
		{"a promise that never settles", "await new Promise(() => {})", sandbox.Error, "waits for a promise that never settles", 0, 0},
		{"a BigInt", "({ n: 1n })", sandbox.Error, `"n" is a BigInt`, 0, 0},
		{"AFunction", "({ f() {} })", sandbox.Error, `"f" is a function`, 0, 0},
		{"ACycle", "const a: any = {}; a.a = a; return a", sandbox.Error, "circular", 0, 0},
		{"recursion", "function f(): number { return 1 + f() }\nreturn f()", sandbox.Error, "stack overflow", 1, 0},
		{"code that creates code", "return eval('1 +')", sandbox.Error, "SyntaxError", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := fails(t, s, sandbox.Request{Code: c.code})
			require.Equal(t, c.failure, f.Name, f)
			require.Contains(t, f.Message, c.message)
			if c.line > 0 {
				require.Equal(t, c.line, f.Line, f.Stack)
			}
			if c.column > 0 {
				require.Equal(t, c.column, f.Column, f.Stack)
			}
		})
	}
}

func TestLogs(t *testing.T) {
	t.Parallel()
	s := started(t, nil)
	got, err := s.Run(t.Context(), sandbox.Request{Code: `
		console.log('plain', 1, true, null, undefined, 10n)
		console.info({ a: [1, 'x', { b: { c: { d: 1 } } }], 'b-c': new Date(0), get g() { throw 1 } })
		console.warn(new TypeError('x'), [new Map([[1, { a: 2 }]]), new Set(['s'])], /r/g, () => 1, Symbol('y'))
		const cycle: any = {}; cycle.self = cycle
		console.error(cycle)
		console.debug(Array.from({ length: 102 }, () => 0).length, new Proxy({}, { ownKeys() { throw 1 } }))
	`})
	require.NoError(t, err)
	require.Equal(t, []sandbox.Log{
		{Level: "log", Message: "plain 1 true null undefined 10n"},
		{Level: "info", Message: `{ a: [ 1, "x", { b: { c: [Object] } } ], "b-c": 1970-01-01T00:00:00.000Z, g: [Getter] }`},
		{Level: "warn", Message: `TypeError: x [ Map(1) { 1 => { a: 2 } }, Set(1) { "s" } ] /r/g [Function] Symbol(y)`},
		{Level: "error", Message: "{ self: [Circular] }"},
		{Level: "debug", Message: "102 [a value that cannot be shown]"},
	}, got.Logs)

	got, err = s.Run(t.Context(), sandbox.Request{Code: `for (let i = 0; i < 10_000; i++) console.log('x'.repeat(100)); return 1`})
	require.NoError(t, err)
	const fit = 64 << 10 / 100
	require.Len(t, got.Logs, fit+1)
	require.Equal(t, sandbox.Log{Level: "warn", Message: "[further output is omitted]"}, got.Logs[fit])

	f := fails(t, s, sandbox.Request{Code: `console.log('before'); throw 1`})
	require.Equal(t, []sandbox.Log{{Level: "log", Message: "before"}}, f.Logs)
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	s := started(t, nil)
	const busy = "let n = 0\nwhile (n < 1e6) n++\nreturn n"
	quick, err := s.Run(t.Context(), sandbox.Request{Code: "let a = new Uint8Array(1); return a.length"})
	require.NoError(t, err)
	slow, err := s.Run(t.Context(), sandbox.Request{Code: busy})
	require.NoError(t, err)
	big, err := s.Run(t.Context(), sandbox.Request{Code: "let a = new Uint8Array(100e6).fill(1); return a.length"})
	require.NoError(t, err)
	require.Greater(t, slow.Metrics.CPU, quick.Metrics.CPU)
	require.Positive(t, quick.Metrics.CPU)
	require.Greater(t, big.Metrics.MemoryMB, quick.Metrics.MemoryMB+75)
	require.Positive(t, quick.Metrics.Execution)
}

func TestRequestLimits(t *testing.T) {
	t.Parallel()
	s := started(t, nil)
	for _, c := range []struct {
		name, failure string
		req           sandbox.Request
	}{
		{"Code", sandbox.CodeTooLarge, sandbox.Request{Code: strings.Repeat(" ", sandbox.MaxCode+1)}},
		{"Timeout", sandbox.Config, sandbox.Request{Timeout: 301e9}},
		{"a negative timeout", sandbox.Config, sandbox.Request{Timeout: -1}},
		{"Memory", sandbox.Config, sandbox.Request{MemoryMB: 513}},
		{"too little memory", sandbox.Config, sandbox.Request{MemoryMB: 15}},
		{"a context that is no object", sandbox.Config, sandbox.Request{Context: json.RawMessage(`[]`)}},
		{"a context that is no JSON", sandbox.Config, sandbox.Request{Context: json.RawMessage(`{`)}},
		{"a context that is too large", sandbox.Config, sandbox.Request{Context: json.RawMessage(`{"a":"` + strings.Repeat("a", 8<<20) + `"}`)}},
		{"Result", sandbox.ResultTooLarge, sandbox.Request{Code: `"x".repeat(2 ** 20 - 1)`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.failure, fails(t, s, c.req).Name)
		})
	}
	require.Len(t, run(t, s, `"x".repeat(2 ** 20 - 2)`), 1<<20)
	require.Equal(t, "1", run(t, s, "return 1"+strings.Repeat(" ", sandbox.MaxCode-8)))
	got, err := s.Run(t.Context(), sandbox.Request{Code: `context.a.length`, Context: json.RawMessage(`{"a":"` + strings.Repeat("a", 8<<20-8) + `"}`), MemoryMB: 512, Timeout: 300e9})
	require.NoError(t, err)
	require.Equal(t, "8388600", string(got.Value))
}

func TestStoppedSandbox(t *testing.T) {
	t.Parallel()
	s, err := sandbox.New(nil)
	require.NoError(t, err)
	_, err = s.Run(t.Context(), sandbox.Request{Code: "1"})
	require.ErrorIs(t, err, sandbox.ErrStopped)
	require.NoError(t, s.Stop(t.Context()))
	require.NoError(t, s.Start(t.Context()))
	require.NoError(t, s.Start(t.Context()))
	require.Equal(t, "1", run(t, s, "1"))
	require.NoError(t, s.Stop(t.Context()))
	require.NoError(t, s.Stop(t.Context()))
	_, err = s.Run(t.Context(), sandbox.Request{Code: "1"})
	require.ErrorIs(t, err, sandbox.ErrStopped)

	_, err = sandbox.New(&sandbox.Options{ReadPaths: []string{"relative"}})
	require.Error(t, err)
	_, err = sandbox.New(&sandbox.Options{MemoryMB: 1})
	require.Error(t, err)
}
