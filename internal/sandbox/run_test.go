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

// TestGlobals compares with the results of Node.js.
func TestGlobals(t *testing.T) {
	t.Parallel()
	s := started(t, nil)
	for _, c := range []struct{ name, code, want string }{
		{"parts of a URL", `(u => [u.href, u.origin, u.protocol, u.username, u.password, u.host, u.hostname, u.port, u.pathname, u.search, u.hash])(new URL(" HTTPS://u:p%40@EXA%6Dple.com:8443/a/./b/../ü?q=ü'b#f g "))`,
			`["https://u:p%40@example.com:8443/a/%C3%BC?q=%C3%BC%27b#f%20g","https://example.com:8443","https:","u","p%40","example.com:8443","example.com","8443","/a/%C3%BC","?q=%C3%BC%27b","#f%20g"]`},
		{"relative URLs", `["../x", "/y?z", "//h/p", "?q", "#f", "", "http:rel", "file:///etc", "a\\b"].map(r => new URL(r, "http://b.com:80/d/e/f?g#h").href)`,
			`["http://b.com/d/x","http://b.com/y?z","http://h/p","http://b.com/d/e/f?q","http://b.com/d/e/f?g#f","http://b.com/d/e/f?g","http://b.com/d/e/rel","file:///etc","http://b.com/d/e/a/b"]`},
		{"other URLs", `["mailto:a@b?s=1", "data:text/plain,a b", "foo://h/a/../b", "http://0x7f.1/", "http://[::1]:80/", "file://localhost/x"].map(r => new URL(r).href)`,
			`["mailto:a@b?s=1","data:text/plain,a b","foo://h/b","http://127.0.0.1/","http://[::1]/","file:///x"]`},
		{"invalid URLs", `["", "/a", "http://", "http://a b", "http://h:99999", "http://[::1", "http://1.2.3.256", "http://a%2Fb", "https://ü.de"].map(r => URL.canParse(r))`,
			`[false,false,false,false,false,false,false,false,false]`},
		{"changes of a URL", "const u = new URL('https://h.com/p?a=1#f')\nu.searchParams.append('b', 'ü &')\nu.protocol = 'http'\nu.host = 'n:81'\nu.port = 'x'\nu.pathname = 'q r'\nu.hash = ''\nu.username = 'me'\nconst before = u.href\nu.search = '?c=3'\nreturn [before, u.searchParams.get('c'), u, URL.parse('x')]",
			`["http://me@n:81/q%20r?a=1&b=%C3%BC+%26","3","http://me@n:81/q%20r?c=3",null]`},
		{"query parameters", "const p = new URLSearchParams('?a=b+c&d=%41%2541&a=%ff&e')\nconst first = [[...p], p.get('a'), p.getAll('a'), p.has('x'), p.size]\np.set('a', '~!*()\\'')\np.delete('d')\np.sort()\nreturn [...first, String(p), String(new URLSearchParams({ x: 1, y: 'z' })), String(new URLSearchParams([['k', 'v']]))]",
			`[[["a","b c"],["d","A%41"],["a","�"],["e",""]],"b c",["b c","�"],false,4,"a=%7E%21*%28%29%27&e=","x=1&y=z","k=v"]`},
		{"text and bytes", "const e = new TextEncoder(), d = new TextDecoder()\nreturn [[...e.encode('aé€😀\\ud800')], d.decode(e.encode('aé€😀')), d.decode(new Uint8Array([0xef, 0xbb, 0xbf, 0x61, 0xe2, 0x82, 0xf0, 0x9f])), d.decode(e.encode('xyz').buffer), e.encodeInto('€€', new Uint8Array(4))]",
			`[[97,195,169,226,130,172,240,159,152,128,239,191,189],"aé€😀","a��","xyz",{"read":1,"written":3}]`},
		{"text that is not UTF-8", "const fails = (f: () => unknown) => { try { f(); return '' } catch (e: any) { return e.name } }\nreturn [fails(() => new TextDecoder('utf-8', { fatal: true }).decode(new Uint8Array([0xc0, 0x80]))), fails(() => new TextDecoder('latin1'))]", `["TypeError","RangeError"]`},
		{"base64", "const fails = (f: () => unknown) => { try { f(); return '' } catch (e: any) { return e.name } }\nreturn [btoa(''), btoa('a'), btoa('ab'), btoa('abc\\xff'), atob('YWI='), atob(' Y W\\nI'), fails(() => btoa('€')), fails(() => atob('a')), fails(() => atob('a-b_'))]",
			`["","YQ==","YWI=","YWJj/w==","ab","ab","InvalidCharacterError","InvalidCharacterError","InvalidCharacterError"]`},
		{"random numbers", "const a = crypto.getRandomValues(new Uint32Array(1000))\nconst fails = (f: () => unknown) => { try { f(); return '' } catch (e: any) { return e.name } }\nreturn [new Set(a).size > 990, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID()), crypto.randomUUID() !== crypto.randomUUID(), fails(() => crypto.getRandomValues(new Uint8Array(65537))), fails(() => crypto.getRandomValues(new Float64Array(1) as any))]",
			`[true,true,true,"QuotaExceededError","TypeMismatchError"]`},
		{"a clock", "const a = performance.now()\nlet b = a\nwhile (b === a) b = performance.now()\nreturn a >= 0 && b > a", `true`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, run(t, s, c.code))
		})
	}
	got, err := s.Run(t.Context(), sandbox.Request{Code: "performance", Context: json.RawMessage(`{"performance": 7}`)})
	require.NoError(t, err)
	require.Equal(t, "7", string(got.Value), "the context takes precedence")
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
	for _, name := range []string{"fetch", "require", "process", "Worker", "XMLHttpRequest", "WebSocket", "std", "os", "Buffer", "Intl", "AbortController", "__call", "__done", "__random", "__now", "__globals", "host"} {
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
		{"an import", "import fs from 'fs'\nreturn fs", sandbox.Syntax, "import is not supported, because the code is the body of a function: use tools by their names", 1, 8},
		{"an import of a type", "import type { A } from 'a'\nreturn 1", sandbox.Syntax, "import is not supported", 1, 8},
		{"an export", "const a = 1\nexport const b = 2", sandbox.Syntax, "export is not supported, because the code is the body of a function: return the result", 2, 1},
		{"a namespace", "namespace A.B { export const x = 1 }\nreturn A.B.x", sandbox.Syntax, "namespace is not supported, because the code is the body of a function: use an object", 1, 11},
		{"a misplaced word", "const x = { a: 1 export }", sandbox.Syntax, `Expected "}" but found "export"`, 1, 18},
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

	for _, c := range []struct {
		code  string
		hints int
	}{
		{"const a = 1\na + 1", 1},
		{"const f = () => {\n  return 3\n}\nf()", 1},
		{"if (context.a) return 1; await f(2)\nfunction f(n: number) { return n }\nf(\n  3\n)", 1},
		{"const a = 1\nreturn a", 0},
		{"const a = 1\nreturn null", 0},
		{"for (const a of [1]) { a }", 0},
		{"const a = () => {\n  1\n}", 0},
		{"if (true) { 1 } else { 2 }", 0},
		{"undefined", 0},
		{"", 0},
	} {
		got, err = s.Run(t.Context(), sandbox.Request{Code: c.code})
		require.NoError(t, err)
		require.Len(t, got.Logs, c.hints, c.code)
		if c.hints > 0 {
			require.Equal(t, sandbox.Log{Level: "warn", Message: "the result is null: several statements need return before the last expression"}, got.Logs[0])
		}
	}

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
